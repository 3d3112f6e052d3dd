//! SARIF 2.1.0 for code scanning: a rule per type of difference, a result per difference.

use driftless_plan::one_line;
use serde_json::{Value, json};

use crate::report::{App, Item, Kind, Report, Type, located};

/// Fingerprints do not depend on lines, so an alert stays the same alert when lines move.
pub fn sarif(report: &Report) -> String {
    let mut results: Vec<Value> = Vec::new();
    for app in &report.apps {
        let key = report.key(app);
        results.extend(app.items.iter().map(|it| result(app, &key, it, report.kind)));
        if let Some(error) = &app.error {
            results.extend(error.lines().map(|it| broken(app, &key, it)));
        }
        if let Some(error) = &app.known_error {
            results.extend(error.lines().map(|it| known(app, &key, it)));
        }
    }
    let notification = |level: &str, error: &String| json!({ "level": level, "message": { "text": error } });
    let known_errors = report.known_errors.iter().map(|error| notification("note", error));
    let notifications: Vec<Value> =
        report.errors.iter().map(|error| notification("error", error)).chain(known_errors).collect();
    let mut run = json!({
        "tool": { "driver": {
            "name": "driftless",
            "version": env!("CARGO_PKG_VERSION"),
            "rules": rules(report.kind),
        } },
        "columnKind": "unicodeCodePoints",
        "invocations": [{
            "executionSuccessful": !report.has_errors(),
            "toolExecutionNotifications": notifications,
        }],
        "results": results,
    });
    if let Some(head) = &report.head {
        run["properties"] = json!({ "commit": head.id });
    }
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    });
    format!("{log:#}\n")
}

fn rule_id(kind: Kind, change: Type) -> String {
    match kind {
        Kind::Drift => format!("drift/{}", change.as_str()),
        Kind::Preview => format!("preview/{}", change.as_str()),
    }
}

fn rules(kind: Kind) -> Vec<Value> {
    let fits = |change: &Type| match change {
        Type::Missing | Type::Extra | Type::Stopped => kind == Kind::Drift,
        Type::Added | Type::Removed | Type::Kept => kind == Kind::Preview,
        Type::Modified | Type::Image => true,
    };
    let mut rules: Vec<Value> = Type::ALL
        .into_iter()
        .filter(fits)
        .map(|change| {
            json!({
                "id": rule_id(kind, change),
                "name": change.as_str(),
                "shortDescription": { "text": change.meaning(kind) },
                "defaultConfiguration": { "level": level(kind, change) },
            })
        })
        .collect();
    rules.push(json!({
        "id": "error",
        "name": "error",
        "shortDescription": { "text": "It could not be rendered or looked at, so nothing is known of it." },
        "defaultConfiguration": { "level": "error" },
    }));
    rules
}

fn level(kind: Kind, change: Type) -> &'static str {
    match change {
        _ if kind == Kind::Preview => "note",
        Type::Missing | Type::Stopped | Type::Image => "error",
        Type::Extra | Type::Modified | Type::Removed => "warning",
        Type::Added | Type::Kept => "note",
    }
}

fn result(app: &App, key: &str, item: &Item, kind: Kind) -> Value {
    let message = format!("{}: {} {}: {}", app.title(), item.kind, item.name, item.sentence());
    let mut value = json!({
        "ruleId": rule_id(kind, item.change),
        "level": level(kind, item.change),
        "message": { "text": message },
        "locations": [location(app, &item.file, item.line)],
        "partialFingerprints": { "driftKey/v1": item.fingerprint(key) },
    });
    if let Some(rule) = &item.ignored {
        value["suppressions"] =
            json!([{ "kind": "external", "justification": format!("ignored by {rule}") }]);
    }
    value
}

fn broken(app: &App, key: &str, error: &str) -> Value {
    let (file, line, message) = located(error);
    let fingerprint = driftless_model::digest_hex(format!("{key}|error|{file}|{message}").as_bytes());
    json!({
        "ruleId": "error",
        "level": "error",
        "message": { "text": format!("{}: {}", app.title(), one_line(message)) },
        "locations": [location(app, file, line)],
        "partialFingerprints": { "driftKey/v1": fingerprint },
    })
}

/// An error that the base has too.
fn known(app: &App, key: &str, error: &str) -> Value {
    let mut value = broken(app, key, error);
    value["level"] = json!("note");
    value["baselineState"] = json!("unchanged");
    value
}

/// Location relative to the repository; the application's folder if the object has no file.
fn location(app: &App, file: &str, line: u32) -> Value {
    let file = if file.is_empty() { app.path.as_str() } else { file };
    let uri = if file.is_empty() { ".".to_owned() } else { percent_encoded(file) };
    let mut physical = json!({ "artifactLocation": { "uri": uri } });
    if line > 0 {
        physical["region"] = json!({ "startLine": line });
    }
    json!({ "physicalLocation": physical })
}

/// Percent-encodes a path for a relative URI reference (RFC 3986).
fn percent_encoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.extend(["%", &format!("{byte:02X}")]);
        }
    }
    out
}
