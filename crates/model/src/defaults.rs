//! Fields that are left out of the JSON while they have their default.

/// Whether a field has its default. Such a field is left out of the JSON, so a new field changes no old hash.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
