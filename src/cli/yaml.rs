//! Prints values as YAML that every reader understands alike: text is quoted if some version of YAML might read it as a
//! number, a date or a boolean.

use std::fmt::Write as _;

use serde_json::Value;

/// A value in block style, indented by two spaces per level.
pub(super) fn render(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(entries) if !entries.is_empty() => block(value, 0, &mut out),
        Value::Array(items) if !items.is_empty() => block(value, 0, &mut out),
        scalar => {
            let _ = writeln!(out, "{}", inline(scalar));
        }
    }
    out
}

/// The lines of a non-empty map or list.
fn block(value: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                let _ = write!(out, "{indent}{}:", text(key));
                nested(value, depth, out);
            }
        }
        Value::Array(items) => {
            for item in items {
                let _ = write!(out, "{indent}-");
                nested(item, depth, out);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The value after a colon or dash.
fn nested(value: &Value, depth: usize, out: &mut String) {
    let is_block = match value {
        Value::Object(entries) => !entries.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    if is_block {
        out.push('\n');
        block(value, depth + 1, out);
    } else {
        let _ = writeln!(out, " {}", inline(value));
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(it) => text(it),
        other => other.to_string(),
    }
}

/// Unquoted only if no reader can take the text for another type.
fn text(text: &str) -> String {
    let is_first = |it: char| it.is_ascii_alphabetic() || matches!(it, '/' | '_' | '.');
    let is_rest = |it: char| it.is_ascii_alphanumeric() || "/_.-@+=".contains(it);
    let words = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"];
    let is_plain = text.starts_with(is_first)
        && text.chars().all(is_rest)
        && !words.contains(&text.to_ascii_lowercase().as_str())
        && !text.starts_with(['.', '+']);
    if is_plain || text.starts_with("./") && text.chars().all(is_rest) {
        return text.to_owned();
    }
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_stays_text_for_every_reader() {
        for word in
            ["yes", "Off", "1.10", "0123", "1_000", "2020-01-02", "~", "", " a", "a: b", "# a", "-", ".inf"]
        {
            assert!(text(word).starts_with('"'), "{word}");
        }
        for word in ["nginx", "/srv/x", "./a", "a-b_c.d", "web.example.org"] {
            assert_eq!(text(word), word);
        }
    }

    #[test]
    fn rendered_yaml_reads_back() {
        let value = json!({
            "name": "a", "x": {"list": [1, "two", {"three": null}, [], {}], "empty": {}, "yes": "on", "text": "a\nb\t\"c\""},
            "rows": [["a"], [{"b": true, "c": 1.5}]],
        });
        let read: Value = serde_yaml::from_str(&render(&value)).unwrap();
        assert_eq!(read, value);
    }
}
