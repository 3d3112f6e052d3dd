//! Messages of gRPC in the bodies of HTTP/2 requests and responses.

use http_body_util::BodyExt;
use hyper::body::{Bytes, Frame};

/// Bytes. The largest message that is accepted.
const LARGEST: usize = 16 << 20;

/// Bytes before each message: whether it is compressed, and its length.
const HEAD: usize = 5;

/// A message as gRPC sends it: not compressed, the length, the message.
pub(crate) fn framed(message: &[u8]) -> Frame<Bytes> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(message.len() + HEAD);
    bytes.push(0);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(message);
    Frame::data(Bytes::from(bytes))
}

/// The incoming messages of one call.
pub(crate) struct Incoming {
    body: hyper::body::Incoming,
    buffer: Vec<u8>,
}

impl Incoming {
    pub(crate) fn new(body: hyper::body::Incoming) -> Self {
        Self { body, buffer: Vec::new() }
    }

    /// `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, String> {
        loop {
            if let Some(message) = cut(&mut self.buffer)? {
                return Ok(Some(message));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(error.to_string()),
                Some(Ok(frame)) => self.buffer.extend_from_slice(&frame.into_data().unwrap_or_default()),
            }
        }
    }
}

/// Removes the first message if it is complete.
fn cut(buffer: &mut Vec<u8>) -> Result<Option<Vec<u8>>, String> {
    let Some((head, rest)) = buffer.split_first_chunk::<HEAD>() else { return Ok(None) };
    let [packed, length @ ..] = *head;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if packed != 0 || length > LARGEST {
        return Err("a message is compressed or too long".to_owned());
    }
    if rest.len() < length {
        return Ok(None);
    }
    let rest = buffer.split_off(HEAD + length);
    let mut message = std::mem::replace(buffer, rest);
    message.drain(..HEAD);
    Ok(Some(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_split_from_the_stream() {
        let mut buffer = Vec::new();
        let whole: Vec<u8> =
            [&b"abc"[..], b"", b"de"].iter().flat_map(|it| framed(it).into_data().unwrap()).collect();
        let mut found = Vec::new();
        for byte in whole {
            buffer.push(byte);
            found.extend(cut(&mut buffer).unwrap());
        }
        assert_eq!(found, [b"abc".to_vec(), b"".to_vec(), b"de".to_vec()]);
        assert!(cut(&mut vec![1, 0, 0, 0, 0]).is_err());
        assert!(cut(&mut vec![0, 255, 0, 0, 0]).is_err());
    }
}
