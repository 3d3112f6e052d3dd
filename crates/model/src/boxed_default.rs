//! A boxed value that takes one pointer while it equals its default. It serializes as the value itself.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value that equals its default almost everywhere, and then takes one pointer.
#[derive(Clone, Default)]
pub struct BoxedDefault<T>(Option<Box<T>>);

/// A type with one shared default.
pub trait SharedDefault: Default + PartialEq + 'static {
    fn shared_default() -> &'static Self;
}

impl<T: SharedDefault> BoxedDefault<T> {
    /// Frees the memory if the value equals its default again.
    pub fn trim(&mut self) {
        if self.0.as_deref().is_some_and(|it| it == T::shared_default()) {
            self.0 = None;
        }
    }
}

impl<T: SharedDefault> From<T> for BoxedDefault<T> {
    fn from(value: T) -> Self {
        Self(Some(value).filter(|it| it != T::shared_default()).map(Box::new))
    }
}

impl<T: SharedDefault> Deref for BoxedDefault<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(it) => it,
            None => T::shared_default(),
        }
    }
}

impl<T: SharedDefault> DerefMut for BoxedDefault<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

impl<T: SharedDefault> PartialEq for BoxedDefault<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: SharedDefault + Eq> Eq for BoxedDefault<T> {}

impl<T: SharedDefault + fmt::Debug> fmt::Debug for BoxedDefault<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: SharedDefault + Serialize> Serialize for BoxedDefault<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de, T: SharedDefault + Deserialize<'de>> Deserialize<'de> for BoxedDefault<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostSettings;

    #[test]
    fn boxed_default_equals_its_value_and_stores_no_default() {
        let mut it = BoxedDefault::<HostSettings>::default();
        assert_eq!(size_of_val(&it), size_of::<usize>());
        assert_eq!(*it, HostSettings::default());
        it.runtime = Some("runc".to_owned());
        let text = serde_json::to_string(&it).unwrap();
        assert_eq!(text, r#"{"runtime":"runc"}"#);
        assert_eq!(serde_json::from_str::<BoxedDefault<HostSettings>>(&text).unwrap(), it);
        it.runtime = None;
        assert_eq!(it, BoxedDefault::default());
        it.trim();
        assert!(it.0.is_none());
        assert!(BoxedDefault::from(HostSettings::default()).0.is_none());
    }
}
