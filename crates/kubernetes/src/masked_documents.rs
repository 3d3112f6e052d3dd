//! Documents for display: values of Secrets are masked, and values whose names look secret.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use driftless_model::Mask;

/// Hides what the rule of [`Mask`] hides, and all values of Secrets.
pub(super) fn hide(documents: &mut [Value], mask: &Mask) {
    let mut found = Found::default();
    for document in documents.iter() {
        found.collect(document);
    }
    let mask = mask
        .with_public_names(found.names.iter().map(String::as_str))
        .with_secret_values(found.secrets.iter().map(String::as_str))
        .with_variables(found.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    for document in documents {
        hide_document(document, &mask);
    }
}

/// Names, Secrets and variables of all documents.
#[derive(Default)]
struct Found {
    names: Vec<String>,
    secrets: Vec<String>,
    variables: Vec<(String, String)>,
}

impl Found {
    fn collect(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            Value::Object(entries) => {
                let text = |key: &str| entries.get(key).and_then(Value::as_str);
                if let (Some(name), Some(value)) = (text("name"), text("value")) {
                    self.variables.push((name.to_owned(), value.to_owned()));
                } else {
                    // Of an object, a container, an image.
                    self.names.extend(["name", "image"].into_iter().filter_map(text).map(str::to_owned));
                }
                if text("kind") == Some("Secret") {
                    let group = |key: &str| entries.get(key).and_then(Value::as_object).into_iter().flatten();
                    let plain =
                        group("stringData").filter_map(|(_, value)| value.as_str()).map(str::to_owned);
                    let encoded =
                        group("data").filter_map(|(_, value)| STANDARD.decode(value.as_str()?).ok());
                    self.secrets
                        .extend(encoded.filter_map(|bytes| String::from_utf8(bytes).ok()).chain(plain));
                    return;
                }
                entries.values().for_each(|value| self.collect(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

fn hide_document(document: &mut Value, mask: &Mask) {
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
            ("items", Value::Array(items)) if is_list => {
                for item in items {
                    hide_document(item, mask);
                }
            }
            (_, value) => hide_below(value, mask),
        }
    }
}

/// Masks variables, labels and annotations by their names, arguments as a command line, and all other text by its form.
fn hide_below(value: &mut Value, mask: &Mask) {
    match value {
        Value::String(text) => *text = mask.text(text),
        Value::Array(items) => items.iter_mut().for_each(|item| hide_below(item, mask)),
        Value::Object(entries) => {
            let name = entries.get("name").and_then(Value::as_str).map(str::to_owned);
            for (key, value) in entries {
                match (key.as_str(), value) {
                    // The name of an object or an image is no secret.
                    ("name" | "image" | "namespace" | "kind" | "apiVersion" | "key", Value::String(text)) => {
                        *text = mask.name(text);
                    }
                    ("value", Value::String(text)) => {
                        *text = mask.value(name.as_deref().unwrap_or_default(), text);
                    }
                    ("command" | "args", Value::Array(items)) => mask.json_arguments(items),
                    ("labels" | "annotations" | "matchLabels", Value::Object(entries)) => {
                        for (name, value) in entries {
                            if let Value::String(text) = value {
                                *text = mask.value(name, text);
                            }
                        }
                    }
                    (_, value) => hide_below(value, mask),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
