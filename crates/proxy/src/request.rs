//! Whether bytes begin an HTTP/1.1 request. A connection whose requests are complete can be moved to another endpoint
//! between two of them, which no other protocol allows.

/// Methods of requests that end before the next one begins. `CONNECT` makes a tunnel, in which anything may follow.
const METHODS: [&[u8]; 7] = [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS"];

/// Whether bytes that a client sends begin with a request line of HTTP/1.1.
pub(crate) fn begins_request(bytes: &[u8]) -> bool {
    let Some(end) = bytes.iter().position(|it| *it == b'\r') else { return false };
    let (line, rest) = bytes.split_at(end);
    let mut words = line.split(|it| *it == b' ');
    let is_line = words.next().is_some_and(|method| METHODS.contains(&method))
        && words.next().is_some_and(|target| !target.is_empty())
        && words.next() == Some(b"HTTP/1.1")
        && words.next().is_none();
    is_line && rest.starts_with(b"\r\n")
}

#[cfg(test)]
mod tests {
    use super::begins_request;

    #[test]
    fn only_request_lines_begin_a_request() {
        for request in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST /a?b=c HTTP/1.1\r\n"] {
            assert!(begins_request(request.as_bytes()), "{request}");
        }
        for other in [
            "",
            "GET / HTTP/1.1",
            "GET / HTTP/1.0\r\n\r\n",
            "CONNECT a:80 HTTP/1.1\r\n\r\n",
            "GET  HTTP/1.1\r\n",
            "get / HTTP/1.1\r\n",
            "GET / b HTTP/1.1\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "\u{16}\u{3}\u{1}GET / HTTP/1.1\r\n",
            "body\r\nGET / HTTP/1.1\r\n",
        ] {
            assert!(!begins_request(other.as_bytes()), "{other}");
        }
    }
}
