//! The route of a request and the names in its path: `/applications/shop/sync` has the application `shop`.

use axum::extract::{MatchedPath, Request};

/// The route that a request has matched, such as `/applications/{name}/{action}`. Empty: there is none.
pub(super) fn matched_route(request: &Request) -> &str {
    request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str)
}

/// The named parts of a path, decoded, in order: `name` and its value.
pub(super) fn path_names(path: &str, route: &str) -> Vec<(String, String)> {
    let pairs = route.split('/').zip(path.split('/'));
    let names = pairs.filter_map(|(pattern, part)| {
        let name = pattern.strip_prefix('{')?.strip_suffix('}')?;
        Some((name.to_owned(), decode(part)))
    });
    names.collect()
}

/// Decodes `%2e`. What is no valid text stays as it is.
fn decode(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| part.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_path_are_decoded() {
        let names = path_names(
            "/applications/sh%6fp/workloads/web/restart",
            "/applications/{name}/workloads/{workload}/restart",
        );
        let expected = [("name".to_owned(), "shop".to_owned()), ("workload".to_owned(), "web".to_owned())];
        assert_eq!(names, expected);
        assert_eq!(decode("100%"), "100%");
        assert_eq!(decode("%ff"), "%ff");
    }
}
