//! Signature Version 4 of Amazon, as requests to S3 use it: one chunk, the body's hash in a header.
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>

use driftless_model::{Timestamp, digest_hex};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::credentials::BucketKeys;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The parts of a request that are signed.
pub(crate) struct Signed<'a> {
    pub(crate) method: &'a str,
    /// With the port, if it is not that of the scheme.
    pub(crate) host: &'a str,
    /// Begins with a slash. Its letters need no escape.
    pub(crate) path: &'a str,
    /// Escaped, sorted by name.
    pub(crate) query: &'a str,
    /// Names in lower case and values, sorted, without those that each request has.
    pub(crate) headers: &'a [(&'static str, &'a str)],
    pub(crate) body: &'a [u8],
    pub(crate) region: &'a str,
    pub(crate) at: Timestamp,
}

/// The headers of a signed request.
pub(crate) fn headers(signed: &Signed<'_>, keys: &BucketKeys) -> Vec<(&'static str, String)> {
    let time = basic_time(signed.at);
    let date = &time[..8.min(time.len())];
    let digest = digest_hex(signed.body);
    let mut all: Vec<(&str, &str)> =
        vec![("host", signed.host), ("x-amz-content-sha256", &digest), ("x-amz-date", &time)];
    all.extend(keys.session.as_deref().map(|session| ("x-amz-security-token", session)));
    all.extend(signed.headers.iter().copied());
    all.sort_unstable();
    let lines: Vec<String> = all.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let canonical = lines.concat();
    let names = all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let Signed { method, path, query, region, .. } = signed;
    let request = format!("{method}\n{path}\n{query}\n{canonical}\n{names}\n{digest}");
    let scope = format!("{date}/{region}/s3/aws4_request");
    let text = format!("{ALGORITHM}\n{time}\n{scope}\n{}", digest_hex(request.as_bytes()));
    let key = [date, region, "s3", "aws4_request"]
        .iter()
        .fold(format!("AWS4{}", keys.secret).into_bytes(), |key, part| mac(&key, part));
    let digits: Vec<String> = mac(&key, &text).iter().map(|byte| format!("{byte:02x}")).collect();
    let signature = digits.concat();
    let authorization =
        format!("{ALGORITHM} Credential={}/{scope},SignedHeaders={names},Signature={signature}", keys.id);
    let mut headers = vec![
        ("authorization", authorization),
        ("x-amz-content-sha256", digest),
        ("x-amz-date", time.clone()),
    ];
    headers.extend(keys.session.clone().map(|session| ("x-amz-security-token", session)));
    headers
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    // A key of any length is taken; an error cannot happen, and no signature would be the right answer to it.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// `20130524T000000Z`
fn basic_time(at: Timestamp) -> String {
    let text = at.to_string();
    let seconds = text.split('.').next().unwrap_or_default();
    seconds.chars().filter(char::is_ascii_alphanumeric).chain(['Z']).collect()
}

/// A value of a query, escaped: only unreserved letters stay.
pub(crate) fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of Amazon's documentation, with its published sample keys.
    #[test]
    fn signatures_are_those_of_the_examples() {
        let keys = BucketKeys {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            session: None,
        };
        let at = Timestamp::parse("2013-05-24T00:00:00Z").unwrap();
        let get = Signed {
            method: "GET",
            host: "examplebucket.s3.amazonaws.com",
            path: "/test.txt",
            query: "",
            headers: &[("range", "bytes=0-9")],
            body: b"",
            region: "us-east-1",
            at,
        };
        let signature = |signed: &Signed<'_>| {
            let all = headers(signed, &keys);
            let authorization = all.iter().find(|(name, _)| *name == "authorization").unwrap().1.clone();
            authorization.rsplit_once("Signature=").unwrap().1.to_owned()
        };
        assert_eq!(signature(&get), "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
        let put = Signed {
            method: "PUT",
            path: "/test%24file.text",
            headers: &[
                ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ],
            body: b"Welcome to Amazon S3.",
            ..get
        };
        assert_eq!(signature(&put), "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
        let get = Signed { method: "GET", headers: &[], body: b"", ..put };
        let lifecycle = Signed { path: "/", query: "lifecycle=", ..get };
        assert_eq!(signature(&lifecycle), "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
        let list = Signed { query: "max-keys=2&prefix=J", ..lifecycle };
        assert_eq!(signature(&list), "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    }

    #[test]
    fn session_is_signed_and_sent() {
        let session = Some("token".to_owned());
        let keys = BucketKeys { id: "A".to_owned(), secret: "s".to_owned(), session };
        let (headers_, at) = (&[][..], Timestamp(0));
        let signed = Signed {
            method: "GET",
            host: "h",
            path: "/",
            query: "",
            headers: headers_,
            body: b"",
            region: "r",
            at,
        };
        let all = headers(&signed, &keys);
        assert!(
            all[0].1.contains("SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token,")
        );
        assert_eq!(all[3], ("x-amz-security-token", "token".to_owned()));
        assert_eq!(all[2].1, "19700101T000000Z");
    }

    #[test]
    fn queries_are_escaped_as_amazon_does() {
        assert_eq!(escaped("prod/eu a+ü~"), "prod%2Feu%20a%2B%C3%BC~");
    }
}
