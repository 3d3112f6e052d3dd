//! Documents for display: values of Secrets are masked, and values whose names look secret.

use serde_json::Value;

use driftless_model::Mask;

pub(super) fn hide(document: &mut Value, mask: &Mask) {
    let is = |kind: &str| document.get("kind").and_then(Value::as_str) == Some(kind);
    let (is_secret, is_config_map, is_list) = (is("Secret"), is("ConfigMap"), is("List"));
    let Value::Object(fields) = document else { return };
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("data" | "stringData", Value::Object(entries)) if is_secret || is_config_map => {
                for (name, value) in entries {
                    if let Value::String(text) = value {
                        *text = if is_secret { mask.hide(text) } else { mask.value(name, text) };
                    }
                }
            }
            ("items", Value::Array(items)) if is_list => items.iter_mut().for_each(|it| hide(it, mask)),
            (_, value) => hide_below(value, mask),
        }
    }
}

/// Masks variables by their names, and passwords in URLs.
fn hide_below(value: &mut Value, mask: &Mask) {
    match value {
        Value::String(text) => *text = mask.text(text),
        Value::Array(items) => items.iter_mut().for_each(|it| hide_below(it, mask)),
        Value::Object(entries) => {
            let name = entries.get("name").and_then(Value::as_str).map(str::to_owned);
            for (key, value) in entries {
                match (name.as_deref(), value) {
                    (Some(name), Value::String(text)) if key == "value" => *text = mask.value(name, text),
                    (_, value) => hide_below(value, mask),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
