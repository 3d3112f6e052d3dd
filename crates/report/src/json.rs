//! JSON and NDJSON.

use serde::Serialize;

use crate::report::Report;

/// The whole report as JSON.
pub fn json(report: &Report) -> String {
    format!("{:#}\n", value(report))
}

fn value<T: Serialize>(it: &T) -> serde_json::Value {
    serde_json::to_value(it).expect("reports serialise without fail")
}

/// NDJSON: one line per difference, error and application.
pub fn ndjson(report: &Report) -> String {
    let mut out = String::new();
    let mut line = |value: serde_json::Value| {
        out.push_str(&value.to_string());
        out.push('\n');
    };
    for error in &report.errors {
        line(serde_json::json!({ "type": "error", "error": error }));
    }
    for error in &report.known_errors {
        line(serde_json::json!({ "type": "error", "known": true, "error": error }));
    }
    for app in &report.apps {
        let mut line = |mut value: serde_json::Value| {
            value["app"] = serde_json::json!(app.name);
            if !app.hosts.is_empty() {
                value["hosts"] = serde_json::json!(app.hosts);
            }
            line(value);
        };
        for item in &app.items {
            line(value(item));
        }
        if let Some(error) = &app.error {
            line(serde_json::json!({ "type": "error", "error": error }));
        }
        if let Some(error) = &app.known_error {
            line(serde_json::json!({ "type": "error", "known": true, "error": error }));
        }
        let mut value =
            serde_json::json!({ "type": "app", "hasDrift": app.has_drift, "items": app.counted().count() });
        if let Some(note) = &app.note {
            value["note"] = serde_json::json!(note);
        }
        line(value);
    }
    let mut summary = value(&report.summary);
    summary["type"] = serde_json::json!("summary");
    line(summary);
    out
}
