//! Kubernetes' quantities: `500m`, `64Mi`, `1.5`, `1e3`.
//!
//! Exact in billionths within 128 bits; smaller fractions are rounded up, as in Kubernetes.

const NANO: i128 = 1_000_000_000;

/// A non-negative amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Quantity {
    nanos: i128,
}

impl Quantity {
    pub(super) const ONE: Self = Self { nanos: NANO };

    /// The quotient, rounded up.
    pub(super) fn divided_by(self, other: Self) -> Option<u64> {
        let whole = self.nanos.checked_div(other.nanos)?;
        u64::try_from(whole + i128::from(self.nanos % other.nanos != 0)).ok()
    }

    /// Reads a quantity in the notation of Kubernetes: a decimal number with one of `n u m k M G T P E`,
    /// `Ki Mi Gi Ti Pi Ei`, or a decimal exponent.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let number = text.strip_prefix('+').unwrap_or(text);
        let end = number.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(number.len());
        let (digits, suffix) = number.split_at(end);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let mantissa: i128 = format!("0{whole}{fraction}").parse().ok()?;
        let places = i32::try_from(fraction.len()).ok()?;
        let (binary, exponent) = scale(suffix)?;
        // Multiply before dividing, so that only fractions below a billionth are lost.
        let total = mantissa.checked_mul(binary)?.checked_mul(NANO)?;
        let power = exponent.checked_sub(places)?;
        let nanos = if power >= 0 {
            total.checked_mul(10_i128.checked_pow(power.unsigned_abs())?)?
        } else {
            match 10_i128.checked_pow(power.unsigned_abs()) {
                Some(divisor) => total / divisor + i128::from(total % divisor != 0),
                None => i128::from(total != 0),
            }
        };
        Some(Self { nanos })
    }

    pub(super) fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub(super) fn is_whole(self) -> bool {
        self.nanos % NANO == 0
    }

    /// In billionths.
    pub(super) fn nanos(self) -> Option<u64> {
        u64::try_from(self.nanos).ok()
    }

    /// In thousandths, rounded up.
    pub(super) fn millis(self) -> Option<u64> {
        u64::try_from((self.nanos + 999_999) / 1_000_000).ok()
    }

    /// In units, rounded up.
    pub(super) fn units(self) -> Option<u64> {
        u64::try_from((self.nanos + NANO - 1) / NANO).ok()
    }
}

/// The factor of a suffix: a power of 1024 and a power of ten.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    let decimal = |power: i32| Some((1, power));
    let binary = |power: u32| Some((1024_i128.pow(power), 0));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            let is_number = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
            is_number.then(|| exponent.parse().ok()).flatten().map(|power| (1, power))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_exact() {
        let nanos = |text| Quantity::parse(text).and_then(Quantity::nanos);
        assert_eq!(nanos("500m"), Some(500_000_000));
        assert_eq!(nanos("0.5"), Some(500_000_000));
        assert_eq!(nanos(".5"), Some(500_000_000));
        assert_eq!(nanos("2"), Some(2_000_000_000));
        assert_eq!(nanos("1n"), Some(1));
        assert_eq!(nanos("0.1n"), Some(1));
        let units = |text| Quantity::parse(text).and_then(Quantity::units);
        assert_eq!(units("64Mi"), Some(67_108_864));
        assert_eq!(units("1G"), Some(1_000_000_000));
        assert_eq!(units("1.5Gi"), Some(1_610_612_736));
        assert_eq!(units("1e3"), Some(1000));
        assert_eq!(units("12E2"), Some(1200));
        assert_eq!(units("1E"), Some(1_000_000_000_000_000_000));
        assert_eq!(units("1e-1"), Some(1));
        assert_eq!(units("128974848000m"), Some(128_974_848));
        assert_eq!(Quantity::parse("100m").and_then(Quantity::millis), Some(100));
        assert!(Quantity::parse("0").is_some_and(Quantity::is_zero));
    }

    #[test]
    fn texts_that_are_no_quantity_are_none_without_a_panic() {
        let huge = "9".repeat(60);
        let tiny = format!("0.{}1", "0".repeat(500));
        for text in [
            "",
            "-1",
            "m",
            "1mi",
            "1 Gi",
            "1MiB",
            "1.2.3",
            "1e",
            "1e+",
            "1e99999999999",
            "1e100",
            ".",
            &huge,
            "٣",
        ] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
        assert_eq!(Quantity::parse(&tiny).and_then(Quantity::nanos), Some(1));
    }
}
