//! Variables of env files whose value is incomplete: another variable in it is not set and became empty, such as that in
//! `DATA=$HOME/appdata`, or the rest of a password after a dollar sign.
//!
//! Such a value is used where the variable is used, so the rules for passwords and paths apply there too. No finding has a
//! text of the value or the name of the other variable: it may be a part of a password.

use driftless_model::{Finding, Location};

use crate::load::{
    dotenv::Assignment,
    missing_values::{EnvFileValue, Meaning, is_password},
    password_place,
};

/// A variable with an incomplete value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Incomplete {
    pub(crate) origin: EnvFileValue,
    /// A password is empty: the variable or the one that is not set has such a name, or it stands in an address.
    pub(crate) is_password: bool,
    /// The value has nothing before the part that became empty, and nothing in its place.
    pub(crate) is_start: bool,
}

impl Incomplete {
    /// Judges an assignment of `file`. `known` returns the incomplete value of a variable in it. `None`: the value is complete.
    pub(crate) fn find(
        assignment: &Assignment,
        file: &str,
        known: &dyn Fn(&str) -> Option<Self>,
    ) -> Option<Self> {
        let Assignment { name, line, value } = assignment;
        let value = value.as_ref()?;
        let own = || EnvFileValue { variable: name.clone(), location: Location::new(file, *line, 0) };
        let unset = value.unset.iter().map(|variable| {
            let is_password = is_password(&variable.name);
            (variable, Self { origin: own(), is_password, is_start: true })
        });
        let inherited = value.set.iter().filter_map(|variable| Some((variable, known(&variable.name)?)));
        let mut found: Option<Self> = None;
        for (variable, part) in unset.chain(inherited) {
            let is_start = part.is_start && variable.at == 0 && !variable.is_filled;
            let is_in_address =
                part.is_start && password_place::is_address_password_at(&value.text, variable.at);
            let is_empty_password = part.is_start && value.text.is_empty() && is_password(name);
            let found = found.get_or_insert_with(|| {
                let origin = part.origin.clone();
                Self { origin, is_password: false, is_start: false }
            });
            found.is_password |= part.is_password || is_in_address || is_empty_password;
            found.is_start |= is_start;
        }
        found
    }

    /// The finding about an assignment whose value goes into a container as it is: an error if it is a password.
    pub(crate) fn finding(&self) -> Finding {
        if self.is_password { self.origin.error("", Meaning::Password) } else { self.origin.warning() }
    }
}
