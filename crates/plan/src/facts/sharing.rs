//! Services of two applications that have written to the same place together.

use std::collections::BTreeSet;

use driftless_model::{AppName, SharedPlace, Stack, WorkloadName};

use crate::facts::places::{Place, place_of};

/// A place, a service of this application and one of another.
#[derive(Clone, Copy)]
pub(crate) struct Sharing<'a> {
    /// The places that services of this application have shared with others.
    pub(crate) known: &'a BTreeSet<SharedPlace>,
    pub(crate) place: &'a Place,
    pub(crate) own: &'a WorkloadName,
    /// The other application.
    pub(crate) with: &'a AppName,
    pub(crate) other: &'a WorkloadName,
}

impl Sharing<'_> {
    /// Whether exactly these two services have written there together.
    pub(crate) fn is_known(&self) -> bool {
        let is_pair = |shared: &SharedPlace| {
            let services = shared.services.as_ref();
            services.is_some_and(|services| services.own == *self.own && services.other == *self.other)
        };
        self.shared().any(is_pair)
    }

    /// Whether the two services may write there together: they have done so before. On a folder of the host, such as one of films, each
    /// of them may be the later or the former name of a service that has, if its application does not have that one. A service that is
    /// there as well as that one has shared nothing yet: a database shares nothing because a backup of it does.
    pub(crate) fn is_usual(&self, own: &Stack, other: Option<&Stack>) -> bool {
        if self.place.is_volume() {
            return self.is_known();
        }
        let is_it = |known: &WorkloadName, name: &WorkloadName, stack: Option<&Stack>| {
            known == name || stack.is_none_or(|stack| !stack.workloads.contains_key(known))
        };
        self.shared().any(|shared| {
            let services = shared.services.as_ref();
            services.is_none_or(|services| {
                is_it(&services.own, self.own, Some(own)) && is_it(&services.other, self.other, other)
            })
        })
    }

    /// The records about this place and the other application.
    fn shared(&self) -> impl Iterator<Item = &SharedPlace> {
        let is_about = move |shared: &&SharedPlace| {
            shared.with == *self.with && place_of(&shared.source).as_ref() == Some(self.place)
        };
        self.known.iter().filter(is_about)
    }
}
