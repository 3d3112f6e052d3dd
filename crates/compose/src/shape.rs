//! The words in which the specification is written down here: what a value may be, and so how it is checked and how
//! it is printed in the canonical form. The tables themselves are in `spec.rs`.

/// What stands for a value.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// Whatever it is, as it stands.
    Any,
    Text,
    /// Text, or nothing at all.
    TextOrNull,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Text that has a form of its own.
    Like(Form),
    /// The path of a file or folder, seen from the project's folder.
    Path,
    /// As a path, where a URL or another kind of source may stand as well.
    Context,
    /// Text or a whole number, which is printed as text.
    TextOrInteger,
    /// Text or a truth value, which is printed as text.
    TextOrBoolean,
    Boolean(Zero),
    /// True or false without quotes.
    StrictBoolean,
    /// A truth value that is printed only when it is false.
    UnlessFalse,
    /// A whole number, or text that is one.
    Integer(Zero),
    /// As an integer, between two bounds.
    Between(i64, i64),
    /// A whole number, and never text.
    StrictInteger,
    /// A number that is kept whole, although a fraction may be written.
    Number,
    Float,
    /// Billionths of a processor: a number, or text that is one.
    Processors,
    /// A size: a number of bytes, or text with a unit.
    Bytes,
    /// A size that can only be text.
    TextBytes,
    Duration(Zero),
    /// Permissions in octal.
    Mode,
    /// Permissions of a memory file system, printed as a plain number.
    RawMode,
    /// How many devices: a number or `all`.
    Count,
    /// A list of texts, each once.
    Texts,
    /// A list of texts that may repeat.
    Repeated,
    TextOrTexts,
    /// As a text or texts, each a path.
    Paths,
    /// A list of texts and numbers, each once.
    TextsOrNumbers,
    /// Nothing, words in one text, or a list.
    Command,
    /// The test of a health check.
    Test,
    /// `NAME=value`, where a bare name has no value.
    Environment,
    /// `key=value`, where a bare key has an empty value.
    Labels,
    /// Named contexts, from a map or from `name=context`.
    Contexts,
    /// A map of options for some driver.
    Options,
    /// Options of a provider, each one or many values.
    Multiple,
    /// Names with their addresses.
    Hosts,
    /// Keys of SSH agents.
    Ssh,
    External,
    /// A map with names of the user's choice.
    Map(Names, &'static Shape),
    List(&'static Shape),
    /// A list in which no two items are the same.
    Each(&'static Shape),
    /// A scalar of the first shape, or else the second.
    Short(&'static Shape, &'static Shape),
    /// A list of the first shape, or else the second.
    Listed(&'static Shape, &'static Shape),
    OrNull(&'static Shape),
    Object(&'static Object),
    /// An object that is printed even where it is not written.
    Always(&'static Object),
    /// An object whose keys are printed with a capital.
    Capitalised(&'static Object),
}

/// A map with keys that the specification knows.
pub(super) struct Object {
    pub(super) fields: &'static [(&'static str, Shape)],
    pub(super) required: &'static [&'static str],
    /// Whether `x-…` may stand in it.
    pub(super) open: bool,
}

/// Whether zero, false or an empty duration is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zero {
    Kept,
    Dropped,
}

/// Text with a form of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    ContainerName,
    PullPolicy,
}

/// Which names a map's keys may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// Letters, digits, `.`, `_` and `-`.
    Plain,
    /// Any.
    Free,
}

impl Object {
    pub(super) fn shape(&self, key: &str) -> Option<&Shape> {
        self.fields.iter().find(|(name, _)| *name == key).map(|(_, shape)| shape)
    }

    /// The keys, for "did you mean".
    pub(super) fn keys(&self) -> String {
        self.fields.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
    }
}
