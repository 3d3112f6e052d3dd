//! The number of applications that leave a repository together. A commit that removes most of them may be a mistake, such as
//! a list `applications` that has only the new ones.

/// Number of applications that leave together without confirmation, unless they are all of several.
const FEW_APPLICATIONS: usize = 3;

/// The deployed applications of one repository, and those of them that its newest commit removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Departures {
    /// Those that would be removed now.
    leaving: usize,
    /// Those that stay.
    staying: usize,
}

impl Departures {
    /// Counts an application that the newest commit has.
    pub(crate) fn add_staying(&mut self) {
        self.staying += 1;
    }

    /// Counts an application that the newest commit does not have.
    pub(crate) fn add_leaving(&mut self) {
        self.leaving += 1;
    }

    /// The number that leaves, if that may be a mistake: all of several, or more than half if they are not few. Applications that
    /// are new in the commit do not count.
    pub(crate) fn mistaken(self) -> Option<usize> {
        let are_all = self.leaving > 1 && self.staying == 0;
        let are_most = self.leaving > FEW_APPLICATIONS && self.leaving > self.staying;
        (are_all || are_most).then_some(self.leaving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_or_all_of_several_applications_may_be_a_mistake() {
        let mistaken = |leaving, staying| Departures { leaving, staying }.mistaken();
        for (leaving, staying) in [(2, 0), (3, 0), (4, 3), (4, 0), (8, 2)] {
            assert_eq!(mistaken(leaving, staying), Some(leaving), "{leaving} leave, {staying} stay");
        }
        for (leaving, staying) in [(0, 0), (1, 0), (1, 1), (2, 1), (3, 1), (4, 4), (5, 9)] {
            assert_eq!(mistaken(leaving, staying), None, "{leaving} leave, {staying} stay");
        }
    }
}
