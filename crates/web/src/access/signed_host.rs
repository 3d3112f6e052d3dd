//! Identifies an enrolled host by the signature of its request: the key of the host, a counter that was not used before, and
//! the request as it was signed.

use std::sync::Arc;

use driftless_agent::INSTANCE_HEADER;
use driftless_fleet::{AgentKey, HostSignature, InvalidKey, PublicKey, SIGNATURE_HEADER, SignedParts};
use driftless_model::{Actor, ActorKind, Scope, Timestamp};
use driftless_store::{self as store, Store};
use http::{HeaderMap, HeaderName, Method, Uri, header};

use super::identify::{Authenticator, Credential, Identity, identity};
use crate::{error::Error, peer::Peer, shared::read};

/// A signed request that is refused.
pub(crate) struct HostRefusal {
    pub(crate) error: Error,
    /// The enrolled host of the name or key that the machine uses.
    pub(crate) host: Option<String>,
    /// A sentence for the admin of the collector, if it uses the key. Empty: it does not.
    pub(crate) reason: String,
    /// The address of the client.
    pub(crate) from: String,
}

/// The decision about a signed request.
enum Decision {
    Genuine,
    WrongSignature,
    /// No key has this name. With the name that this key has.
    Unknown(Option<String>),
    /// This other key has the name.
    Taken(String),
    Replayed,
}

/// The request, without its body.
struct SignedCall {
    method: String,
    path: String,
    report: String,
    instance: String,
}

impl Authenticator {
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The host that has signed a request. Refused requests are limited by the client's address.
    pub(crate) async fn identify_host(
        self: &Arc<Self>,
        (method, uri): (Method, Uri),
        headers: &HeaderMap,
        peer: Option<Peer>,
    ) -> Result<Identity, HostRefusal> {
        let from = self.client_address(headers, peer);
        let address = from.map(|from| from.to_string()).unwrap_or_default();
        let refusal = |error| HostRefusal { error, host: None, reason: String::new(), from: address.clone() };
        let only = |name: &HeaderName| only_text(headers, name);
        let signature: HostSignature = only(&HeaderName::from_static(SIGNATURE_HEADER))
            .map_err(refusal)?
            .parse()
            .map_err(|InvalidKey| refusal(Error::Malformed(format!("the header `{SIGNATURE_HEADER}`"))))?;
        let seen = SignedCall {
            method: method.to_string(),
            path: uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
            report: only(&header::IF_NONE_MATCH).map_err(refusal)?,
            instance: only(&HeaderName::from_static(INSTANCE_HEADER)).map_err(refusal)?,
        };
        let (given, now) = (signature.clone(), self.clock.now());
        let decision = read(&self.store, move |store| decide(store, &given, &seen, now)).await;
        let decision = decision.map_err(refusal)?;
        let host = signature.host.clone();
        let not_enrolled = |text| refusal(Error::NotEnrolled(text));
        let refused = match decision {
            Decision::Genuine => {
                let (actor, scopes) = (Actor::new(ActorKind::Host, host.clone()), vec![Scope::Report(host)]);
                let mut identity = identity(actor, scopes, Credential::Signature, from);
                identity.signature = Some(signature);
                return Ok(identity);
            }
            Decision::WrongSignature => not_enrolled(
                "the signature is not right for this collector: join it again with a new invite".to_owned(),
            ),
            Decision::Unknown(None) => not_enrolled(format!(
                "no key of `{host}` is enrolled here: run `driftless fleet invite --name {host}` on the collector and `driftless fleet join` on this host"
            )),
            Decision::Unknown(Some(other)) => {
                let refused = not_enrolled(format!(
                    "the key of this host is enrolled as `{other}`, and it reports as `{host}`: set `host.name` back, or join again"
                ));
                let reason = format!(
                    "its machine reports as `{host}` now and is refused: set its `host.name` back, or invite it and join with the new name"
                );
                HostRefusal { host: Some(other), reason, ..refused }
            }
            Decision::Taken(fingerprint) => {
                let error = Error::Refused(format!(
                    "another machine is enrolled as `{host}` (key {fingerprint}): give this one another name and join again, or run `driftless fleet revoke {host}` on the collector first"
                ));
                HostRefusal { host: Some(host.clone()), ..refusal(error) }
            }
            Decision::Replayed => {
                let error = Error::Replayed(host.clone());
                HostRefusal { host: Some(host.clone()), reason: OLD_COUNTER.to_owned(), ..refusal(error) }
            }
        };
        // Hosts behind the same proxy as a wrong one are not held up.
        let reason = format!("{}: {}", signature.host, refused.error);
        self.refuse_random(from, &reason).map_err(refusal)?;
        Err(refused)
    }
}

/// The sentence about a genuine request whose counter is not higher than those that were there. A copy of the machine sends such ones,
/// and so does a proxy or a person on the way that repeats one.
const OLD_COUNTER: &str = "a request with its key and an old counter was refused: its disk was copied, or the \
                           request was repeated on the way. If there is a copy, remove the state directory of one of \
                           both and join it with another name; if the copy is gone, restart the agent of this host";

/// Reads the store and stores the counter, so it blocks.
fn decide(
    store: &Store,
    signature: &HostSignature,
    seen: &SignedCall,
    now: Timestamp,
) -> Result<Decision, store::Error> {
    let collector = AgentKey::from_seed(&store.fleet_key_seed()?).and_then(|key| key.public());
    let Ok(collector) = collector else { return Ok(Decision::WrongSignature) };
    let SignedCall { method, path, report, instance } = seen;
    let parts = SignedParts { collector: &collector, method, path, report, instance };
    if !signature.is_genuine(&parts) {
        return Ok(Decision::WrongSignature);
    }
    let key = signature.key.to_string();
    let Some(known) = store.fleet_key(&signature.host)? else {
        return Ok(Decision::Unknown(store.host_of_fleet_key(&key)?));
    };
    if known.key != key {
        let fingerprint = known.key.parse().map(|key: PublicKey| key.fingerprint());
        return Ok(Decision::Taken(fingerprint.unwrap_or_default()));
    }
    let is_new = store.advance_fleet_counter(&signature.host, &key, signature.counter, now)?;
    Ok(if is_new { Decision::Genuine } else { Decision::Replayed })
}

/// The only value of a header. Empty: there is none. A handler that acts on a header that a signature covers reads it with this
/// function too, so that it acts on the value that was signed.
///
/// # Errors
/// If there are several values, or it has other letters than those of ASCII.
pub(crate) fn only_text(headers: &HeaderMap, name: &HeaderName) -> Result<String, Error> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), second) = (values.next(), values.next()) else { return Ok(String::new()) };
    if second.is_some() {
        return Err(Error::Malformed(format!("there is more than one header `{name}`")));
    }
    let text =
        value.to_str().map_err(|_| Error::Malformed(format!("the header `{name}` is no ASCII text")))?;
    Ok(text.to_owned())
}
