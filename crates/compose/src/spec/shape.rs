//! The words of the specification: the shape of a value decides how it is checked and how it is printed in the
//! canonical form. The table of keys is in `keys.rs`.

use driftless_yaml::{Keys, Support};

/// The shape of a value.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// Any value, printed as it is.
    Any,
    /// A string.
    Text,
    /// A string, or null.
    TextOrNull,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A string in a given form.
    Like(Form),
    /// The path of a file or folder, relative to the project's folder.
    Path,
    /// A path, a URL, or another source of a build context.
    Context,
    /// A string or a whole number; printed as a string.
    TextOrInteger,
    /// A string or a boolean; printed as a string.
    TextOrBoolean,
    /// A boolean, or a string that is one.
    Boolean(Zero),
    /// A boolean without quotes.
    StrictBoolean,
    /// A boolean that is printed only if it is false.
    UnlessFalse,
    /// A whole number, or a string that is one.
    Integer(Zero),
    /// As [`Self::Integer`], between two bounds.
    Between(i64, i64),
    /// A whole number without quotes.
    StrictInteger,
    /// A number that may be written with a fraction, and is truncated.
    Number,
    /// A number.
    Float,
    /// A number of processors, or a string that is one.
    Processors,
    /// A number of bytes, or a string with a unit.
    Bytes,
    /// A size that must be a string.
    TextBytes,
    /// A duration such as `1m30s`.
    Duration(Zero),
    /// Permissions in octal.
    Mode,
    /// Permissions of a tmpfs; printed as a decimal number.
    RawMode,
    /// A number of devices, or `all`.
    Count,
    /// A list of different strings.
    Texts,
    /// A list of strings that may repeat.
    Repeated,
    /// A string, or a list of different strings.
    TextOrTexts,
    /// A path, or a list of different paths.
    Paths,
    /// A list of different strings and numbers.
    TextsOrNumbers,
    /// Null, words in one string, or a list.
    Command,
    /// The test of a health check.
    Test,
    /// `NAME=value`, where a bare name has no value.
    Environment,
    /// `key=value`, where a bare key has an empty value.
    Labels,
    /// Named contexts, from a map or from `name=context`.
    Contexts,
    /// A map of options for a driver.
    Options,
    /// Options of a provider, each with one or more values.
    Multiple,
    /// Host names with their addresses.
    Hosts,
    /// Keys of SSH agents.
    Ssh,
    /// A boolean, or the obsolete `{name: …}`.
    External,
    /// A map with names that the user chooses.
    Map(Names, &'static Shape),
    /// A list.
    List(&'static Shape),
    /// A list of different items.
    Each(&'static Shape),
    /// A scalar of the first shape, anything else of the second.
    Short(&'static Shape, &'static Shape),
    /// A list of the first shape, anything else of the second.
    Listed(&'static Shape, &'static Shape),
    /// The inner shape, or null.
    OrNull(&'static Shape),
    /// A map with known keys.
    Object(&'static Object),
    /// An object that is printed even if it is not written.
    Always(&'static Object),
    /// An object whose keys are printed with a capital letter.
    Capitalised(&'static Object),
    /// An extension of this project: neither checked nor printed, because the specification does not know it.
    Extension,
}

/// One key of an object.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) support: Support,
    /// For the documentation: limits and requirements of a key that is used.
    pub(crate) note: &'static str,
}

/// A key that is used.
pub(crate) const fn key(name: &'static str, shape: Shape) -> Key {
    Key { name, shape, support: Support::Used, note: "" }
}

impl Key {
    /// Adds a note for the documentation.
    pub(crate) const fn note(self, note: &'static str) -> Self {
        Self { note, ..self }
    }

    /// The key is accepted with a warning.
    pub(crate) const fn no_effect(self, why: &'static str) -> Self {
        Self { support: Support::NoEffect(why), ..self }
    }

    /// The key is an error, if the service that has it is used.
    pub(crate) const fn refused(self, why: &'static str) -> Self {
        Self { support: Support::Refused(why), ..self }
    }
}

/// A map with known keys.
pub(crate) struct Object {
    pub(crate) fields: &'static [Key],
    pub(crate) required: &'static [&'static str],
    /// Whether extensions (`x-…`) are allowed.
    pub(crate) open: bool,
}

impl Object {
    /// The shape of a key. `None`: the specification does not know it.
    pub(crate) fn shape(&self, name: &str) -> Option<&Shape> {
        self.fields.iter().find(|key| key.name == name).map(|key| &key.shape)
    }
}

impl Keys for Object {
    fn support(&self, name: &str) -> Option<Support> {
        self.fields.iter().find(|key| key.name == name).map(|key| key.support)
    }

    fn names(&self) -> Vec<&'static str> {
        self.fields.iter().map(|key| key.name).collect()
    }
}

/// Whether zero, false or an empty duration is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zero {
    Kept,
    Dropped,
}

/// The form of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    ContainerName,
    PullPolicy,
}

/// The names that the keys of a map may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// Letters, digits, `.`, `_` and `-`.
    Plain,
    /// Any.
    Free,
}
