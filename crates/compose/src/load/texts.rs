//! The limit on texts that variables bring into one application. A short file can name one long text any number of times.

use driftless_files::{Budget, Exceeded};
use driftless_model::{Finding, Location};

/// The bytes that these texts may have together, each as often as it is used: values after interpolation, and the files of
/// variables that services and includes read.
const MOST: usize = 32 << 20;

/// The bytes that a variable takes in addition to its name and value.
const ENTRY: usize = 64;

/// The bytes that are left for texts.
#[derive(Debug)]
pub(crate) struct Texts(Budget);

/// The texts of the application are too large.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("with these {size} KiB, the variables and interpolated values of this application exceed {} MiB", MOST >> 20)]
pub(crate) struct TooLarge {
    size: usize,
}

impl TooLarge {
    /// The finding at the place of the text that exceeds the limit.
    pub(crate) fn at(&self, location: Location, path: impl Into<String>) -> Finding {
        let help =
            "let fewer services name the variable or `env_file`, or mount large values as files (`configs`)";
        Finding::error(location, path, self.to_string()).help(help)
    }
}

impl Default for Texts {
    fn default() -> Self {
        Self(Budget::new(MOST))
    }
}

impl Texts {
    /// Takes bytes for a text. An error if too few are left, which has its reason the first time, so that it is reported
    /// once.
    pub(crate) fn take(&self, bytes: usize) -> Result<(), Option<TooLarge>> {
        let error = |Exceeded { is_first }| is_first.then_some(TooLarge { size: bytes.div_ceil(1024) });
        self.0.take(bytes).map_err(error)
    }

    /// As [`Self::take`], for a variable with this many bytes.
    pub(crate) fn take_variable(&self, bytes: usize) -> Result<(), Option<TooLarge>> {
        self.take(ENTRY + bytes)
    }
}
