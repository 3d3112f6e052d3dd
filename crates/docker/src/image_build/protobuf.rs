//! Protocol buffers, as far as the messages of `BuildKit` need them: fields by number, in both directions.

/// Writes a message.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

/// One field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u64),
    /// Text, bytes or a message.
    Bytes(&'a [u8]),
}

impl Writer {
    /// Zero is the default and is not written.
    pub(crate) fn number(mut self, field: u64, value: u64) -> Self {
        if value != 0 {
            self.varint(field << 3);
            self.varint(value);
        }
        self
    }

    /// An empty value is the default and is not written.
    pub(crate) fn bytes(self, field: u64, value: &[u8]) -> Self {
        if value.is_empty() { self } else { self.message(field, value) }
    }

    /// Written even if it is empty: its presence has a meaning.
    pub(crate) fn message(mut self, field: u64, value: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            #[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        #[expect(clippy::cast_possible_truncation, reason = "the last seven bits")]
        self.0.push(value as u8);
    }
}

/// The fields of a message, with their numbers. An unreadable field ends the iteration.
pub(crate) fn fields(mut bytes: &[u8]) -> impl Iterator<Item = (u64, Value<'_>)> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let key = varint(&mut bytes)?;
        let value = match key & 7 {
            0 => Value::Number(varint(&mut bytes)?),
            1 => Value::Bytes(take(&mut bytes, 8)?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                Value::Bytes(take(&mut bytes, length)?)
            }
            5 => Value::Bytes(take(&mut bytes, 4)?),
            _ => return None,
        };
        Some((key >> 3, value))
    })
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_fields_are_read_back() {
        let bytes = Writer::default()
            .number(1, 300)
            .number(2, 0)
            .bytes(3, b"abc")
            .bytes(4, b"")
            .message(5, b"")
            .finish();
        let read: Vec<_> = fields(&bytes).collect();
        assert_eq!(read, [(1, Value::Number(300)), (3, Value::Bytes(b"abc")), (5, Value::Bytes(b""))]);
    }

    #[test]
    fn truncated_message_ends_the_iteration() {
        for cut in [&[0x08][..], &[0x1a, 5, 1], &[0x0b], &[0xff; 12]] {
            assert_eq!(fields(cut).count(), 0, "{cut:?}");
        }
    }
}
