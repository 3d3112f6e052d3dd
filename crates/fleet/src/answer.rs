//! Signed answers of a collector: requests to the host come back with the answer to its report.
//!
//! The signature covers the host, the counter of its report and the body, so an answer counts for one report only.

use driftless_model::{HostRequest, digest_hex};
use serde::{Deserialize, Serialize};

use crate::{
    keys::{AgentKey, PublicKey, statement},
    signed::HostSignature,
};

const ANSWER: &str = "driftless fleet answer v1";

/// The body of an answer with requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportAnswer {
    /// The requests of the collector, oldest first.
    pub requests: Vec<HostRequest>,
}

impl ReportAnswer {
    /// The signature of a body as the answer to this report.
    pub fn sign(key: &AgentKey, report: &HostSignature, body: &[u8]) -> String {
        key.sign(&answer_statement(report, body))
    }

    /// Whether the collector with this key has signed a body as the answer to this report.
    pub fn is_genuine(collector: &PublicKey, report: &HostSignature, body: &[u8], signature: &str) -> bool {
        collector.verifies(&answer_statement(report, body), signature)
    }
}

fn answer_statement(report: &HostSignature, body: &[u8]) -> Vec<u8> {
    let (key, counter, body) = (report.key.to_string(), report.counter.to_string(), digest_hex(body));
    statement(ANSWER, &[&report.host, &key, &counter, &body])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{keys::tests::key, signed::SignedParts};

    #[test]
    fn answer_counts_for_one_report_of_one_host() {
        let (host, collector) = (key(1), key(2));
        let public = collector.public().unwrap();
        let parts = SignedParts { collector: &public, method: "PUT", path: "/", report: "", instance: "" };
        let sign = |name: &str, counter| HostSignature::new(&host, name, counter, b"", &parts).unwrap();
        let report = sign("nas", 1);
        let signature = ReportAnswer::sign(&collector, &report, b"{}");
        assert!(ReportAnswer::is_genuine(&public, &report, b"{}", &signature));
        assert!(!ReportAnswer::is_genuine(&public, &sign("nas", 2), b"{}", &signature));
        assert!(!ReportAnswer::is_genuine(&public, &sign("web", 1), b"{}", &signature));
        assert!(!ReportAnswer::is_genuine(&public, &report, b"{ }", &signature));
        assert!(!ReportAnswer::is_genuine(&key(3).public().unwrap(), &report, b"{}", &signature));
    }
}
