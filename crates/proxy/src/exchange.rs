//! Follows the requests and answers of a connection of HTTP/1.1, so that it is certain when none is on its way: only then can
//! another endpoint answer the next request.
//!
//! It reads the heads of messages and counts the bytes of their bodies. It gives up for good, and the connection stays with
//! its endpoint, where it is not certain: another protocol, a request before the answer to the one before has ended
//! (pipelining), a body that ends with the connection, a body in chunks that is a large transfer, a head that programs may
//! read in several ways.

use std::borrow::Cow;

use memchr::{memchr, memchr2};
use serde::{Deserialize, Serialize};

use crate::{flow::Piece, request::begins_request};

/// The longest head or line that is kept until its end has come, in bytes.
const LONGEST: usize = 16 * 1024;

/// The requests and answers of a connection. Part of the handover.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Exchange(Option<Followed>);

/// The present request and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Followed {
    request: Part,
    answer: Part,
    /// The answer has no body, although its head may announce one.
    is_head: bool,
    /// An earlier request had its complete answer. An older program says nothing of it.
    #[serde(default)]
    has_answered: bool,
}

/// The part of a message that comes next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Part {
    /// The head, which began with these bytes.
    Head(Vec<u8>),
    /// So many bytes of the body. With 0 the message is complete.
    Body(u64),
    /// So many bytes of a chunk.
    Chunk(u64),
    /// A line between chunks, which began with these bytes.
    Line(Line, Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Line {
    Size,
    EndOfChunk,
    Trailer,
}

/// A complete head.
struct Head<'a> {
    first: &'a [u8],
    /// With the empty line at its end.
    length: usize,
    /// The body that its fields announce.
    body: Option<Part>,
}

/// The beginning of a message as far as it has come.
enum Scanned<'a> {
    Complete(Head<'a>),
    Partial,
}

impl Exchange {
    /// A connection on which nothing was said yet.
    pub(crate) fn new() -> Self {
        Self(Some(Followed::new()))
    }

    /// Whether it is certain that each request has its complete answer.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.as_ref().is_some_and(Followed::is_idle)
    }

    /// Whether requests were answered and none is on its way. An endpoint that ends such a connection answers no other.
    pub(crate) fn has_answered_all(&self) -> bool {
        self.0.as_ref().is_some_and(|it| it.has_answered && it.is_idle())
    }

    /// Whether the next bytes of the client need not be read, because they are part of a body or nothing is followed.
    pub(crate) fn may_skip_request(&self) -> bool {
        self.0.as_ref().is_none_or(|it| it.request.may_skip())
    }

    /// The same of the endpoint.
    pub(crate) fn may_skip_answer(&self) -> bool {
        self.0.as_ref().is_none_or(|it| it.answer.may_skip())
    }

    /// Notes what the client has sent.
    pub(crate) fn note_request(&mut self, piece: Piece<'_>) {
        if self.0.as_mut().is_some_and(|it| it.note_request(piece).is_none()) {
            self.0 = None;
        }
    }

    /// Notes what the endpoint has sent.
    pub(crate) fn note_answer(&mut self, piece: Piece<'_>) {
        if self.0.as_mut().is_some_and(|it| it.note_answer(piece).is_none()) {
            self.0 = None;
        }
    }
}

impl Followed {
    fn new() -> Self {
        Self { request: Part::Head(Vec::new()), answer: Part::Body(0), is_head: false, has_answered: false }
    }

    fn is_idle(&self) -> bool {
        self.answer.is_complete() && matches!(&self.request, Part::Head(known) if known.is_empty())
    }

    /// `None`: it is not certain any more which request an answer belongs to.
    fn note_request(&mut self, piece: Piece<'_>) -> Option<()> {
        if self.is_idle() {
            let Piece::Read(bytes) = piece else { return None };
            if !begins_request(bytes) {
                return None;
            }
            self.is_head = bytes.starts_with(b"HEAD ");
            self.answer = Part::Head(Vec::new());
        }
        // Without fields for it, a request has no body.
        self.request.advance(piece, |head| Some(head.body.unwrap_or(Part::Body(0))))?;
        self.end_if_complete();
        Some(())
    }

    fn note_answer(&mut self, piece: Piece<'_>) -> Option<()> {
        let is_head = self.is_head;
        self.answer.advance(piece, |head| after_head(head, is_head))?;
        self.end_if_complete();
        Some(())
    }

    fn end_if_complete(&mut self) {
        if self.request.is_complete() && self.answer.is_complete() {
            *self = Self { has_answered: true, ..Self::new() };
        }
    }
}

impl Part {
    fn is_complete(&self) -> bool {
        *self == Self::Body(0)
    }

    fn may_skip(&self) -> bool {
        !matches!(self, Self::Head(_) | Self::Body(0))
    }

    fn advance(&mut self, piece: Piece<'_>, after_head: impl Fn(Head<'_>) -> Option<Self>) -> Option<()> {
        let mut bytes = match (piece, &mut *self) {
            (Piece::Read(bytes), _) => bytes,
            (Piece::Moved(count), Self::Body(rest)) => {
                *rest = rest.checked_sub(count)?;
                return Some(());
            }
            (Piece::Moved(_), _) => return None,
        };
        while !bytes.is_empty() {
            let (next, used) = match self {
                Self::Head(known) => {
                    let text = joined(known, bytes);
                    let Scanned::Complete(head) = read_head(&text)? else { return keep(known, text) };
                    let used = head.length.checked_sub(known.len())?;
                    (after_head(head)?, used)
                }
                Self::Body(rest) => (Self::Body(rest.checked_sub(bytes.len() as u64)?), bytes.len()),
                Self::Chunk(rest) => {
                    let used = usize::try_from(*rest).map_or(bytes.len(), |rest| rest.min(bytes.len()));
                    match rest.saturating_sub(used as u64) {
                        0 => (Self::Line(Line::EndOfChunk, Vec::new()), used),
                        rest => (Self::Chunk(rest), used),
                    }
                }
                Self::Line(line, known) => {
                    let text = joined(known, bytes);
                    let Some(end) = end_of_line(&text) else { return keep(known, text) };
                    let used = end.checked_sub(known.len())?;
                    (line.next(text.get(..end)?)?, used)
                }
            };
            *self = next;
            bytes = bytes.get(used..)?;
        }
        Some(())
    }
}

impl Line {
    /// The part after this line. `None`: it is no such line.
    fn next(self, line: &[u8]) -> Option<Part> {
        let text = line.strip_suffix(b"\r\n")?;
        match self {
            Self::Size => {
                let digits = text.split(|it| *it == b';').next()?.trim_ascii();
                let size = number(digits, 16)?;
                Some(if size == 0 { Part::Line(Self::Trailer, Vec::new()) } else { Part::Chunk(size) })
            }
            Self::EndOfChunk => text.is_empty().then(|| Part::Line(Self::Size, Vec::new())),
            Self::Trailer if text.is_empty() => Some(Part::Body(0)),
            Self::Trailer => Some(Part::Line(Self::Trailer, Vec::new())),
        }
    }
}

/// The part after the head of an answer. `None`: nobody knows where the answer ends.
fn after_head(head: Head<'_>, is_head: bool) -> Option<Part> {
    match head.first.strip_prefix(b"HTTP/1.1 ")?.get(..3)? {
        // Another protocol begins.
        b"101" => None,
        // The answer itself follows.
        [b'1', ..] => Some(Part::Head(Vec::new())),
        b"204" | b"304" => Some(Part::Body(0)),
        _ if is_head => Some(Part::Body(0)),
        _ => head.body,
    }
}

/// A head from its first byte. `None`: it may be read in several ways.
fn read_head(bytes: &[u8]) -> Option<Scanned<'_>> {
    let (mut rest, mut first, mut body) = (bytes, None, None);
    // Some programs also end a line with one of the two.
    while let Some(end) = memchr2(b'\r', b'\n', rest) {
        let (line, next) = rest.split_at_checked(end)?;
        rest = match next {
            [b'\r', b'\n', next @ ..] => next,
            b"\r" => break,
            _ => return None,
        };
        match first {
            None => first = Some(line),
            Some(first) if line.is_empty() => {
                return Some(Scanned::Complete(Head { first, length: bytes.len() - rest.len(), body }));
            }
            Some(_) => {
                let (name, value) = line.split_at_checked(memchr(b':', line)?)?;
                // A line that goes on with the one before, or a name that some programs trim.
                if name.is_empty() || name.trim_ascii().len() < name.len() {
                    return None;
                }
                note_field(&mut body, name, value.get(1..)?.trim_ascii())?;
            }
        }
    }
    Some(Scanned::Partial)
}

/// Notes the body that a field announces. `None`: its value is not understood, or another field announces one as well, which
/// may contradict it.
fn note_field(body: &mut Option<Part>, name: &[u8], value: &[u8]) -> Option<()> {
    let announced = if name.eq_ignore_ascii_case(b"content-length") {
        Part::Body(number(value, 10)?)
    } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
        value.eq_ignore_ascii_case(b"chunked").then(|| Part::Line(Line::Size, Vec::new()))?
    } else {
        return Some(());
    };
    body.replace(announced).is_none().then_some(())
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let text = str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u64::from_str_radix(text, radix).ok()
}

/// The index after the first line.
fn end_of_line(bytes: &[u8]) -> Option<usize> {
    memchr(b'\n', bytes).map(|index| index + 1)
}

fn joined<'a>(known: &[u8], bytes: &'a [u8]) -> Cow<'a, [u8]> {
    if known.is_empty() { bytes.into() } else { [known, bytes].concat().into() }
}

/// Keeps what began until its end comes.
fn keep(known: &mut Vec<u8>, text: Cow<'_, [u8]>) -> Option<()> {
    if text.len() > LONGEST {
        return None;
    }
    *known = text.into_owned();
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection after these pieces: `>` of the client, `<` of the endpoint, a number moved unseen.
    fn after(pieces: &[(char, &str)]) -> Exchange {
        let mut exchange = Exchange::new();
        for (side, text) in pieces {
            let piece = match text.parse() {
                Ok(count) => Piece::Moved(count),
                Err(_) => Piece::Read(text.as_bytes()),
            };
            if *side == '>' { exchange.note_request(piece) } else { exchange.note_answer(piece) }
        }
        exchange
    }

    const GET: (char, &str) = ('>', "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    const OK: (char, &str) = ('<', "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");

    #[test]
    fn complete_answers_leave_nothing_on_its_way() {
        let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n1F\r\n";
        let post = "POST / HTTP/1.1\r\nContent-Length: 20\r\n\r\n";
        let body = ('>', "GET / HTTP/1.1\r\n\r\n12");
        let chunked = ('>', "PUT / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n");
        let cases: &[&[(char, &str)]] = &[
            &[],
            &[GET, OK],
            &[GET, OK, GET, OK],
            &[GET, ('<', "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n")],
            &[
                GET,
                ('<', chunks),
                ('<', "abcdefghijklmnopqrstuvwxyz01234"),
                ('<', "\r\n0\r\nA: b\r"),
                ('<', "\n\r\n"),
            ],
            &[GET, ('<', "HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\na"), ('<', "299998"), ('<', "b")],
            &[
                ('>', "GET / HTTP/1.1\r\nHos"),
                ('>', "t: a\r\n\r"),
                ('>', "\n"),
                ('<', "HTT"),
                ('<', &OK.1[3..]),
            ],
            &[('>', "HEAD / HTTP/1.1\r\n\r\n"), ('<', "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")],
            &[('>', post), ('<', "HTTP/1.1 100 Continue\r\n\r\n"), body, OK],
            &[('>', post), OK, body],
            &[chunked, OK],
        ];
        for pieces in cases {
            assert!(after(pieces).is_idle(), "{pieces:?}");
            assert_eq!(after(pieces).has_answered_all(), !pieces.is_empty(), "{pieces:?}");
            let mut next = pieces.to_vec();
            next.push(GET);
            assert!(!after(&next).is_idle(), "{next:?}");
            next.push(OK);
            assert!(after(&next).is_idle(), "{next:?}");
        }
    }

    #[test]
    fn requests_without_a_complete_answer_are_on_their_way() {
        let post = ('>', "POST / HTTP/1.1\r\nContent-Length: 20\r\n\r\n");
        let half = ('<', "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhi");
        let cases: &[&[(char, &str)]] = &[
            &[GET],
            &[GET, half],
            &[GET, ('<', "HTTP/1.1 103 Early Hints\r\n\r\n")],
            &[GET, ('<', "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n")],
            // The body may look like a request.
            &[post, ('<', "HTTP/1.1 100 Continue\r\n\r\n"), ('>', "GET / HTTP/1.1\r\n\r\n")],
            &[post, OK],
        ];
        for pieces in cases {
            let exchange = after(pieces);
            assert!(!exchange.is_idle() && exchange.0.is_some(), "{pieces:?}");
            assert!(!exchange.has_answered_all(), "{pieces:?}");
        }
    }

    #[test]
    fn uncertain_connections_are_given_up_for_good() {
        let half = ('<', "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhi");
        let two = format!("{}{}", GET.1, GET.1);
        let long = format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(LONGEST));
        let cases: &[&[(char, &str)]] = &[
            // Pipelining.
            &[GET, GET],
            &[GET, half, GET],
            &[('>', &two)],
            // The endpoint speaks first, or once more.
            &[('<', "220 mail\r\n")],
            &[GET, OK, OK],
            // Other protocols, and answers that end with the connection.
            &[('>', "\u{16}\u{3}\u{1}")],
            &[('>', "GET / HTTP/1.0\r\n\r\n")],
            &[GET, ('<', "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n")],
            &[GET, ('<', "HTTP/1.1 200 OK\r\n\r\n")],
            &[GET, ('<', "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi")],
            // Unseen bytes that are no body of a known length.
            &[GET, ('<', "100000")],
            &[GET, half, ('<', "3")],
            &[GET, ('<', "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n"), ('<', "100000")],
            // Heads that programs read in several ways.
            &[('>', "GET / HTTP/1.1\r\nA: b\n\r\n")],
            &[('>', "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n")],
            &[('>', "POST / HTTP/1.1\r\nContent-Length : 3\r\n\r\n")],
            &[('>', "POST / HTTP/1.1\r\nA: b\r\n Content-Length: 3\r\n\r\n")],
            &[('>', "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n")],
            &[('>', "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n")],
            &[('>', "POST / HTTP/1.1\r\nContent-Length: +3\r\n\r\n")],
            &[('>', "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n")],
            &[GET, ('<', "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n")],
            &[GET, ('<', "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n")],
            &[('>', &long), ('>', "a")],
        ];
        for pieces in cases {
            let mut exchange = after(pieces);
            assert_eq!(exchange.0, None, "{pieces:?}");
            exchange.note_request(Piece::Read(GET.1.as_bytes()));
            exchange.note_answer(Piece::Read(OK.1.as_bytes()));
            assert!(!exchange.is_idle() && !exchange.has_answered_all(), "{pieces:?}");
        }
    }

    #[test]
    fn exchange_of_an_older_program_is_taken_over() {
        let older = r#"{"request":{"Head":[]},"answer":{"Body":0},"is_head":false}"#;
        let mut exchange: Exchange = serde_json::from_str(older).unwrap();
        assert!(exchange.is_idle() && !exchange.has_answered_all());
        exchange.note_request(Piece::Read(GET.1.as_bytes()));
        exchange.note_answer(Piece::Read(OK.1.as_bytes()));
        assert!(exchange.has_answered_all());
    }

    #[test]
    fn only_bodies_may_be_moved_unseen() {
        let large = ('<', "HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n");
        let skips = |pieces: &[(char, &str)]| {
            let exchange = after(pieces);
            (exchange.may_skip_request(), exchange.may_skip_answer())
        };
        assert_eq!(skips(&[]), (false, false));
        assert_eq!(skips(&[GET, large]), (false, true));
        assert_eq!(skips(&[GET, large, ('<', "300000")]), (false, false));
        assert_eq!(skips(&[('>', "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n")]), (true, false));
        assert_eq!(skips(&[('>', "SSH-2.0")]), (true, true), "nothing is followed");
    }
}
