//! The JSON schemas of the configuration file and of `driftless.yaml`, made from the table of their keys.

use serde_json::{Map, Value, json};

use crate::keys::{GIT_FILE, ROOT, Shape, Table};

/// The JSON schema (draft 2020-12) of `driftless.yaml` in a repository.
pub fn schema_of_repository() -> Value {
    let mut schema = object(&GIT_FILE);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Settings of a repository that Driftless follows");
    schema
}

/// The JSON schema (draft 2020-12) of the configuration file. It checks keys and forms; rules between values are checked
/// when the agent reads the file.
pub fn schema() -> Value {
    let mut schema = object(&ROOT);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Configuration of the Driftless agent");
    schema
}

fn object(table: &Table) -> Value {
    let properties: Map<String, Value> = table
        .all()
        .map(|key| {
            let mut value = shape(&key.shape);
            value["description"] = json!(key.about);
            (key.name.to_owned(), value)
        })
        .collect();
    let mut schema = json!({ "type": "object", "additionalProperties": false, "properties": properties });
    if !table.required.is_empty() {
        schema["required"] = json!(table.required);
    }
    schema
}

fn shape(shape: &Shape) -> Value {
    match shape {
        // `tag: 1.10` is read as the text `1.10`. A key without a value counts as not given.
        Shape::Text => json!({ "type": ["string", "number", "boolean", "null"] }),
        Shape::Path | Shape::File => json!({ "type": ["string", "null"], "pattern": "^/" }),
        Shape::Address => json!({ "type": ["string", "null"], "pattern": "^.+:[0-9]+$" }),
        Shape::Duration => json!({ "type": ["string", "null"], "pattern": "^([0-9]+[a-z]+)+$" }),
        Shape::Boolean => json!({ "type": ["boolean", "null"] }),
        Shape::Integer(most) => json!({ "type": ["integer", "null"], "minimum": 0, "maximum": most }),
        Shape::Word(words) => json!({ "enum": words }),
        Shape::OneOrMore(table) => {
            let one = json!({ "anyOf": [{ "type": "string" }, object(table)] });
            json!({ "anyOf": [{ "type": ["string", "null"] }, object(table), { "type": "array", "items": one }] })
        }
        Shape::Strings => json!({ "type": ["array", "null"], "items": shape_of_item() }),
        Shape::Paths => json!({ "type": ["array", "null"], "items": { "type": "string", "pattern": "^/" } }),
        Shape::List(pattern) => {
            json!({ "type": ["array", "null"], "items": { "type": "string", "pattern": pattern } })
        }
        Shape::Mapping => {
            let value = json!({ "type": ["string", "number", "boolean", "null"] });
            json!({ "type": ["object", "null"], "additionalProperties": value })
        }
        Shape::Object(table) => object(table),
        Shape::TextOr(table) => json!({ "anyOf": [{ "type": ["string", "null"] }, object(table)] }),
        Shape::ListOf(table) => json!({ "type": ["array", "null"], "items": object(table) }),
    }
}

fn shape_of_item() -> Value {
    json!({ "type": ["string", "number", "boolean"] })
}

impl Shape {
    /// The keys of its map, if it is one or a list of them.
    pub(super) const fn table(&self) -> Option<&'static Table> {
        match self {
            Self::OneOrMore(table) | Self::TextOr(table) | Self::Object(table) | Self::ListOf(table) => {
                Some(*table)
            }
            Self::Text
            | Self::Path
            | Self::File
            | Self::Address
            | Self::Duration
            | Self::Boolean
            | Self::Integer(_)
            | Self::Word(_)
            | Self::Strings
            | Self::Paths
            | Self::Mapping
            | Self::List(_) => None,
        }
    }
}
