//! The parts of a template and of a path.

use serde_json::Value;

/// One path, which may lead to several values.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli::kubectl) struct JsonPath {
    pub(super) from: Start,
    pub(super) steps: Vec<Step>,
}

/// A syntax error with its column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the JSONPath `{text}`, column {column}: {message}")]
pub(in crate::cli::kubectl) struct SyntaxError {
    pub(in crate::cli::kubectl) text: String,
    /// Counts from 1.
    pub(in crate::cli::kubectl) column: usize,
    pub(in crate::cli::kubectl) message: String,
}

/// One part of a template.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    Text(String),
    Path(JsonPath),
    Range(JsonPath, Vec<Part>),
}

/// The value at which a path starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// `$`
    Root,
    /// `@`, or nothing.
    Here,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Field(String),
    /// `*`
    All,
    /// `..`: everything below, and the value itself.
    Below,
    Slice {
        from: Option<i64>,
        to: Option<i64>,
        by: i64,
    },
    Index(i64),
    Union(Vec<Step>),
    Filter(Box<Filter>),
}

/// The condition of `[?(…)]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Filter {
    Has(JsonPath),
    Compare(Operand, Comparison, Operand),
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operand {
    Path(JsonPath),
    Literal(Value),
}

/// A comparison of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}
