//! The free space of a disk, and the least that a user wants to have.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The space of a disk, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskSpace {
    /// The space that programs can still use.
    pub free: u64,
    /// All of it.
    pub total: u64,
}

/// The least free space of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeSpace {
    /// This many bytes.
    Bytes(u64),
    /// This share of the whole disk, from 1 to 99.
    Percent(u8),
}

/// A text that is no size: see [`parse_bytes`] and [`FreeSpace::from_str`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct NoSize {
    text: String,
    expected: &'static str,
}

impl FreeSpace {
    /// Whether a disk has less free space than this.
    pub fn is_more_than(self, disk: DiskSpace) -> bool {
        let wanted = match self {
            Self::Bytes(bytes) => u128::from(bytes),
            Self::Percent(percent) => u128::from(disk.total) * u128::from(percent) / 100,
        };
        u128::from(disk.free) < wanted
    }
}

impl FromStr for FreeSpace {
    type Err = NoSize;

    /// Reads `20GB` or `10%`.
    fn from_str(text: &str) -> Result<Self, NoSize> {
        let error = || NoSize { text: text.to_owned(), expected: "a size such as `20GB` or `10%`" };
        let Some(percent) = text.strip_suffix('%') else {
            return parse_bytes(text).map(Self::Bytes).map_err(|_| error());
        };
        match percent.trim().parse() {
            Ok(percent @ 1..=99) => Ok(Self::Percent(percent)),
            Ok(_) | Err(_) => Err(error()),
        }
    }
}

/// Reads a whole number of bytes with a unit: `500MB`, `20GB`, `1TB` in powers of 1000; `500MiB`, `20GiB`, `1TiB` in powers of 1024.
///
/// # Errors
/// A text of another form, a number without a unit, or more than 2⁶⁴ - 1 bytes.
pub fn parse_bytes(text: &str) -> Result<u64, NoSize> {
    let error = || NoSize { text: text.to_owned(), expected: "a size such as `500MB` or `20GiB`" };
    let digits = text.find(|character: char| !character.is_ascii_digit()).ok_or_else(error)?;
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit.trim() {
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(error()),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit() {
        assert_eq!(parse_bytes("20GB"), Ok(20_000_000_000));
        assert_eq!(parse_bytes("512 MiB"), Ok(512 << 20));
        for wrong in ["", "20", "GB", "-1GB", "1.5GB", "20gb", "99999999999TB"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn floor_is_a_size_or_a_share() {
        let disk = |free| DiskSpace { free, total: 1000 };
        let share: FreeSpace = "10%".parse().unwrap();
        assert!(share.is_more_than(disk(99)) && !share.is_more_than(disk(100)));
        let size: FreeSpace = "1MB".parse().unwrap();
        assert!(size.is_more_than(disk(999_999)) && !size.is_more_than(disk(1_000_000)));
        for wrong in ["0%", "100%", "%", "10", "a lot"] {
            let error = wrong.parse::<FreeSpace>().unwrap_err();
            assert_eq!(error.to_string(), format!("`{wrong}` is not a size such as `20GB` or `10%`"));
        }
    }
}
