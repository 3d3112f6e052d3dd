//! What hardly anything has, in the room of one word where there is nothing of it. It is read and written as what it
//! holds: nobody needs to know.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value that is its default nearly everywhere.
#[derive(Clone, Default)]
pub struct Seldom<T>(Option<Box<T>>);

/// What can be seldom: it has one default for all to look at.
pub trait Lone: Default + PartialEq + 'static {
    fn lone() -> &'static Self;
}

impl<T: Lone> Seldom<T> {
    /// What was written to and is its default again takes no room.
    pub fn trim(&mut self) {
        if self.0.as_deref().is_some_and(|it| it == T::lone()) {
            self.0 = None;
        }
    }
}

impl<T: Lone> From<T> for Seldom<T> {
    fn from(value: T) -> Self {
        Self(Some(value).filter(|it| it != T::lone()).map(Box::new))
    }
}

impl<T: Lone> Deref for Seldom<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(it) => it,
            None => T::lone(),
        }
    }
}

impl<T: Lone> DerefMut for Seldom<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

impl<T: Lone> PartialEq for Seldom<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Lone + Eq> Eq for Seldom<T> {}

impl<T: Lone + fmt::Debug> fmt::Debug for Seldom<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Lone + Serialize> Serialize for Seldom<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de, T: Lone + Deserialize<'de>> Deserialize<'de> for Seldom<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostSettings;

    #[test]
    fn it_is_as_what_it_holds_and_holds_no_default() {
        let mut it = Seldom::<HostSettings>::default();
        assert_eq!(size_of_val(&it), size_of::<usize>());
        assert_eq!(*it, HostSettings::default());
        it.runtime = Some("runc".to_owned());
        let text = serde_json::to_string(&it).unwrap();
        assert_eq!(text, r#"{"runtime":"runc"}"#);
        assert_eq!(serde_json::from_str::<Seldom<HostSettings>>(&text).unwrap(), it);
        it.runtime = None;
        assert_eq!(it, Seldom::default());
        it.trim();
        assert!(it.0.is_none());
        assert!(Seldom::from(HostSettings::default()).0.is_none());
    }
}
