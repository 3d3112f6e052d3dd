//! The check of the identity token (OpenID Connect Core 1.0, section 3.1.3.7).

use driftless_model::Timestamp;
use jsonwebtoken::{
    Algorithm, DecodingKey, Validation, decode, decode_header,
    errors::ErrorKind,
    jwk::{Jwk, PublicKeyUse},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::Error;

/// The difference between the clocks of the provider and of this machine that is accepted, in seconds.
const LEEWAY: u64 = 120;

/// The algorithms with a public key. A token that says `none` or names a shared secret is refused.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// The public keys of the provider.
#[derive(Deserialize)]
pub(crate) struct Keys {
    /// One by one, since a provider may have keys of a kind that is not known here.
    keys: Vec<Value>,
}

/// The claims that a token must have.
pub(crate) struct Expected<'a> {
    pub(crate) issuer: &'a str,
    pub(crate) client_id: &'a str,
    pub(crate) nonce: &'a str,
    pub(crate) now: Timestamp,
}

/// The claims of a token that the provider has signed for this agent and this log-in.
pub(crate) fn claims(token: &str, keys: &Keys, expected: &Expected<'_>) -> Result<Map<String, Value>, Error> {
    let invalid = |reason: &str| Error::Token(reason.to_owned());
    let header = decode_header(token).map_err(|error| Error::Token(error.to_string()))?;
    if !ALGORITHMS.contains(&header.alg) {
        return Err(Error::Token(format!("it is signed by {:?}, which is not accepted", header.alg)));
    }
    let signing = keys.keys.iter().filter_map(|key| Jwk::deserialize(key).ok());
    let signing = signing.filter(|key| !matches!(key.common.public_key_use, Some(PublicKeyUse::Encryption)));
    let candidates: Vec<Jwk> =
        signing.filter(|key| header.kid.is_none() || key.common.key_id == header.kid).collect();
    // Expiry is checked below, by the clock of the agent.
    let mut validation = Validation::new(header.alg);
    validation.set_issuer(&[expected.issuer]);
    validation.set_audience(&[expected.client_id]);
    validation.set_required_spec_claims(&["iss", "aud"]);
    validation.validate_exp = false;
    let mut refusal = invalid("the provider has no key of that name");
    for key in candidates {
        let checked = DecodingKey::from_jwk(&key)
            .and_then(|key| decode::<Map<String, Value>>(token, &key, &validation))
            .map_err(|error| Error::Token(reason(&error)));
        match checked {
            Ok(token) => return check_claims(token.claims, expected),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

/// The reason of the library, in words.
fn reason(error: &jsonwebtoken::errors::Error) -> String {
    match error.kind() {
        ErrorKind::InvalidAudience => "it is for another client".to_owned(),
        ErrorKind::InvalidIssuer => "it is of another provider".to_owned(),
        ErrorKind::InvalidSignature => "its signature is wrong".to_owned(),
        _ => error.to_string(),
    }
}

fn check_claims(claims: Map<String, Value>, expected: &Expected<'_>) -> Result<Map<String, Value>, Error> {
    let invalid = |reason: &str| Error::Token(reason.to_owned());
    let seconds = |name: &str| claims.get(name).and_then(Value::as_f64);
    #[allow(clippy::cast_precision_loss, reason = "seconds since 1970 have fewer digits")]
    let (now, leeway) = ((expected.now.0 / 1000) as f64, LEEWAY as f64);
    let end = seconds("exp").ok_or_else(|| invalid("it has no end"))?;
    if end + leeway < now {
        return Err(invalid("its time is over: compare the clocks of the provider and of this machine"));
    }
    if seconds("nbf").or_else(|| seconds("iat")).is_some_and(|begin| begin > now + leeway) {
        return Err(invalid("its time has not come: compare the clocks of the provider and of this machine"));
    }
    if claims.get("nonce").and_then(Value::as_str) != Some(expected.nonce) {
        return Err(invalid("it is of another log-in"));
    }
    // A token for several parties names the one that asked for it.
    let has_others = claims.get("aud").and_then(Value::as_array).is_some_and(|all| all.len() > 1);
    let party = claims.get("azp").and_then(Value::as_str);
    if party.is_some_and(|party| party != expected.client_id) || (has_others && party.is_none()) {
        return Err(invalid("it is for another client"));
    }
    if claims.get("sub").and_then(Value::as_str).is_none_or(str::is_empty) {
        return Err(invalid("it names nobody"));
    }
    Ok(claims)
}
