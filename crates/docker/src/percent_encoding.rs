//! Percent-encoding for the paths and queries of calls.

use std::fmt::Write;

/// For a value in a query: everything but letters, digits and `-._~` is escaped.
pub(crate) fn encode(text: &str) -> String {
    encode_except(text, b"-._~")
}

/// For a path inside a container, whose slashes stay.
pub(crate) fn encode_path(path: &str) -> String {
    encode_except(path, b"/-._~")
}

fn encode_except(text: &str, unescaped: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || unescaped.contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a string cannot fail");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_values_are_escaped() {
        assert_eq!(encode("a/b:1.0-x_y~"), "a%2Fb%3A1.0-x_y~");
        assert_eq!(encode("{\"ä\"}"), "%7B%22%C3%A4%22%7D");
    }

    #[test]
    fn slashes_of_paths_stay() {
        assert_eq!(encode_path("/a b/ä&.x"), "/a%20b/%C3%A4%26.x");
    }
}
