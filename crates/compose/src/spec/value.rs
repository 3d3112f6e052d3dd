//! Typed values of a Compose file: what the schema repeats, on top of the typed reader of `driftless_yaml`.

use std::time::Duration;

use driftless_model::Finding;
use driftless_yaml::{Dialect, Kind, Place};

use crate::spec::scalar::{self, Compose, Plain};

pub(crate) type Value<'a> = driftless_yaml::Value<'a, Compose>;

/// One `NAME=value`, from a list or from a map. A bare name has no value.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) name: String,
    pub(crate) value: Option<String>,
}

/// A value with its place and path, for findings about it later.
#[derive(Clone, Debug)]
pub(crate) struct Placed<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
    pub(crate) path: String,
}

impl<T> Placed<T> {
    /// Another value at the same place.
    pub(crate) fn with<U>(&self, value: U) -> Placed<U> {
        Placed { value, place: self.place.clone(), path: self.path.clone() }
    }

    pub(crate) fn error(&self, message: impl Into<String>) -> Finding {
        Finding::error(self.place.location(), self.path.clone(), message)
    }

    pub(crate) fn warning(&self, message: impl Into<String>) -> Finding {
        Finding::warning(self.place.location(), self.path.clone(), message)
    }
}

/// The types that Compose has besides those of YAML. Each method reports what it cannot read and returns `None`.
pub(crate) trait Read {
    /// A string, owned.
    fn owned(&self) -> Option<String>;

    /// A string that is not empty; an empty one counts as not given.
    fn filled(&self) -> Option<String>;

    /// A string or a number, as a string.
    fn text_or_number(&self) -> Option<String>;

    /// Any scalar as a string; null is `Some(None)`.
    #[expect(clippy::option_option, reason = "a wrong value and null are not the same")]
    fn any_scalar(&self) -> Option<Option<String>>;

    /// A whole number in the range of `T`.
    fn whole<T: TryFrom<i64>>(&self) -> Option<T>;

    fn float(&self) -> Option<f64>;

    fn duration(&self) -> Option<Duration>;

    /// A size in bytes, as a number or with a unit.
    fn bytes(&self) -> Option<u64>;

    /// A string, or a list of strings.
    fn string_or_list(&self) -> Vec<String>;

    /// A map of scalars, or a list of `NAME=value` strings.
    fn assignments(&self) -> Vec<Pair>;

    /// A value with the place of this one.
    fn placed<T>(&self, value: T) -> Placed<T>;
}

impl Read for Value<'_> {
    fn owned(&self) -> Option<String> {
        self.string().map(String::from)
    }

    fn filled(&self) -> Option<String> {
        self.owned().filter(|text| !text.is_empty())
    }

    fn text_or_number(&self) -> Option<String> {
        match Plain::of(self.node) {
            Some((
                text,
                plain @ (Plain::Text
                | Plain::Integer(_)
                | Plain::Unsigned(_)
                | Plain::Float(_)
                | Plain::Time(_)),
            )) => plain.print(text),
            Some((_, Plain::Null | Plain::Bool(_))) | None => {
                self.wrong_type("a string or a number");
                None
            }
        }
    }

    fn any_scalar(&self) -> Option<Option<String>> {
        let scalar = Plain::of(self.node);
        if scalar.is_none() {
            self.wrong_type("a single value");
        }
        scalar.map(|(text, plain)| plain.print(text))
    }

    fn whole<T: TryFrom<i64>>(&self) -> Option<T> {
        let value = Compose::integer(self.node).and_then(|value| T::try_from(value).ok());
        if value.is_none() {
            self.wrong_type("a whole number in range");
        }
        value
    }

    fn float(&self) -> Option<f64> {
        let value = match Plain::of(self.node) {
            #[expect(clippy::cast_precision_loss, reason = "no value of interest is beyond 2^52")]
            Some((_, Plain::Integer(value))) => Some(value as f64),
            #[expect(clippy::cast_precision_loss, reason = "as in the reference parser")]
            Some((_, Plain::Unsigned(value))) => Some(value as f64),
            Some((_, Plain::Float(value))) => Some(value),
            Some((text, Plain::Text)) => text.parse().ok().filter(|value: &f64| value.is_finite()),
            Some((_, Plain::Null | Plain::Bool(_) | Plain::Time(_))) | None => None,
        };
        if value.is_none() {
            self.wrong_type("a number");
        }
        value
    }

    fn duration(&self) -> Option<Duration> {
        let text = self.string()?;
        let value = scalar::duration(&text);
        if value.is_none() {
            self.error("is not a duration; write a number with a unit, such as `1m30s`");
        }
        value
    }

    fn bytes(&self) -> Option<u64> {
        let value = match Plain::of(self.node) {
            Some((_, Plain::Integer(value))) => u64::try_from(value).ok(),
            Some((text, Plain::Text | Plain::Unsigned(_) | Plain::Float(_))) => scalar::bytes(text),
            Some((_, Plain::Null | Plain::Bool(_) | Plain::Time(_))) | None => None,
        };
        if value.is_none() {
            self.error("is not a size; write a number of bytes, or a number with a unit, such as `512m`");
        }
        value
    }

    fn string_or_list(&self) -> Vec<String> {
        match &self.node.kind {
            Kind::Sequence(_) => self.strings(),
            Kind::Scalar { .. } | Kind::Mapping(_) => self.owned().into_iter().collect(),
        }
    }

    fn assignments(&self) -> Vec<Pair> {
        match &self.node.kind {
            Kind::Sequence(_) => {
                let texts = self.strings().into_iter();
                let pair = |text: String| match text.split_once('=') {
                    Some((name, value)) => Pair { name: name.to_owned(), value: Some(value.to_owned()) },
                    None => Pair { name: text, value: None },
                };
                texts.map(pair).collect()
            }
            Kind::Mapping(entries) => {
                let mut pairs = Vec::with_capacity(entries.len());
                for entry in entries {
                    if let Some(value) = self.key(&entry.key, &entry.value).any_scalar() {
                        pairs.push(Pair { name: entry.key.clone(), value });
                    }
                }
                pairs
            }
            Kind::Scalar { .. } => {
                self.wrong_type("a map or a list");
                Vec::new()
            }
        }
    }

    fn placed<T>(&self, value: T) -> Placed<T> {
        Placed { value, place: self.node.place.clone(), path: self.path.clone() }
    }
}
