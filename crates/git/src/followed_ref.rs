//! The followed reference: which references to list, and which of them is meant. Pure functions.
//!
//! A reference that the server does not list is an error, never a reason to remove anything.

use gix::{ObjectId, protocol::handshake::Ref};

use super::{
    error::{Cause, Problem, invalid},
    history,
    remote_client::{self, RefListing},
};
use driftless_config::Reference;
use driftless_model::VersionRange;

/// The followed reference as the server has it.
pub(super) struct FollowedRef {
    /// The left side of the refspec.
    source: String,
    pub(super) commit: ObjectId,
    /// The object that the reference itself points to: the commit, or an annotated tag.
    pub(super) object: ObjectId,
    /// The tag's name, where a tag is followed.
    pub(super) tag: Option<String>,
    pub(super) hash: gix::hash::Kind,
}

const TAGS: &str = "refs/tags/";

impl FollowedRef {
    /// Overwrites, since a branch may be rewritten.
    pub(super) fn spec(&self) -> String {
        format!("+{}:{}", self.source, history::TIP)
    }
}

/// The prefixes of references to list. With a branch goes `HEAD`, which tells a deleted branch from an empty repository.
pub(super) fn prefixes(reference: &Reference) -> Vec<String> {
    match reference {
        Reference::Branch(name) => vec!["HEAD".to_owned(), branch(name)],
        Reference::Tag(name) => vec![tag(name)],
        Reference::Semver(_) => vec![tag("")],
        // For a single commit only the hash algorithm of the server is needed.
        Reference::Head | Reference::Commit(_) => vec!["HEAD".to_owned()],
    }
}

/// Picks the configured reference out of a listing.
pub(super) fn choose(reference: &Reference, listing: &RefListing) -> Result<FollowedRef, Problem> {
    let hash = listing.hash;
    let named = |name: &str| listing.refs.iter().find(|it| remote_client::name_of(it) == name);
    let target = |found: Option<&Ref>, source: String| {
        let (commit, object) = match found? {
            Ref::Peeled { object, tag, .. } => (*object, *tag),
            Ref::Direct { object, .. } | Ref::Symbolic { object, .. } => (*object, *object),
            Ref::Unborn { .. } => return None,
        };
        let tag = source.strip_prefix(TAGS).map(str::to_owned);
        Some(FollowedRef { source, commit, object, tag, hash })
    };
    match reference {
        Reference::Head => {
            let head = named("HEAD");
            let source = match head {
                Some(Ref::Symbolic { target, .. }) => target.to_string(),
                Some(Ref::Peeled { .. } | Ref::Direct { .. } | Ref::Unborn { .. }) | None => {
                    "HEAD".to_owned()
                }
            };
            target(head, source).ok_or_else(|| {
                let message = "the server names no default branch with commits; is the repository empty?";
                Problem::new(Cause::RepositoryEmpty, message)
            })
        }
        Reference::Branch(name) => {
            let full = branch(name);
            target(named(&full), full).ok_or_else(|| match named("HEAD") {
                Some(Ref::Peeled { .. } | Ref::Direct { .. } | Ref::Symbolic { .. }) => Problem::new(
                    Cause::BranchNotFound,
                    format!("the branch `{name}` does not exist on the server; was it deleted or renamed?"),
                ),
                Some(Ref::Unborn { .. }) | None => Problem::new(
                    Cause::RepositoryEmpty,
                    format!(
                        "the branch `{name}` does not exist on the server, nor does a default branch; was the \
                         repository emptied?"
                    ),
                ),
            })
        }
        Reference::Tag(name) => {
            let full = tag(name);
            target(named(&full), full).ok_or_else(|| {
                Problem::new(Cause::TagNotFound, format!("the tag `{name}` does not exist on the server"))
            })
        }
        Reference::Semver(range) => {
            let found = highest(listing, |version| range.matches(version));
            target(found, found.map(remote_client::name_of).unwrap_or_default().to_owned()).ok_or_else(|| {
                let there = highest(listing, |_| true)
                    .map(remote_client::name_of)
                    .and_then(|it| it.strip_prefix(TAGS));
                let message = match there {
                    Some(name) => format!("no tag is a version in `{range}`; the highest is `{name}`"),
                    None => {
                        format!("no tag is a version in `{range}`, nor any version such as `v1.2.3` at all")
                    }
                };
                Problem::new(Cause::TagNotFound, message)
            })
        }
        Reference::Commit(id) => {
            let commit = ObjectId::from_hex(id.as_str().as_bytes())
                .map_err(|_| invalid(format!("`{id}` is no full id")))?;
            if commit.kind() != hash {
                let message = format!("`{id}` is a {} id, and the repository uses {hash}", commit.kind());
                return Err(Problem::new(Cause::CommitNotFound, message));
            }
            Ok(FollowedRef { source: id.to_string(), commit, object: commit, tag: None, hash })
        }
    }
}

/// Refuses names that Git would not take; they could be patterns.
pub(super) fn check(reference: &Reference) -> Result<(), Problem> {
    let is_good = |full: String| gix::validate::reference::name(full.as_str().into()).is_ok();
    match reference {
        Reference::Head | Reference::Semver(_) => Ok(()),
        Reference::Branch(name) if is_good(branch(name)) => Ok(()),
        Reference::Tag(name) if is_good(tag(name)) => Ok(()),
        Reference::Branch(name) => Err(invalid(format!("`{name}` is not a valid branch name"))),
        Reference::Tag(name) => Err(invalid(format!("`{name}` is not a valid tag name"))),
        Reference::Commit(id) if ObjectId::from_hex(id.as_str().as_bytes()).is_ok() => Ok(()),
        Reference::Commit(id) => {
            Err(invalid(format!("`{id}` is not the full id of a commit (40 or 64 digits)")))
        }
    }
}

/// The tag of the highest version. Of several that differ in build metadata only, always the same one.
fn highest(listing: &RefListing, is_wanted: impl Fn(&semver::Version) -> bool) -> Option<&Ref> {
    let versions = listing.refs.iter().filter_map(|reference| {
        let version = VersionRange::version_of(remote_client::name_of(reference).strip_prefix(TAGS)?)?;
        is_wanted(&version).then_some((version, remote_client::name_of(reference), reference))
    });
    versions.max_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1))).map(|it| it.2)
}

fn branch(name: &str) -> String {
    format!("refs/heads/{}", name.trim_start_matches("refs/heads/"))
}

fn tag(name: &str) -> String {
    format!("{TAGS}{}", tag_name(name))
}

/// The name of a tag that may be configured as `refs/tags/NAME`.
pub(super) fn tag_name(name: &str) -> &str {
    name.trim_start_matches(TAGS)
}

#[cfg(test)]
mod tests {
    use driftless_model::CommitId;

    use super::*;

    fn direct(name: &str, digit: &str) -> Ref {
        let object = ObjectId::from_hex(digit.repeat(40).as_bytes()).unwrap();
        Ref::Direct { full_ref_name: name.into(), object }
    }

    #[test]
    fn a_branch_is_not_mistaken_for_one_that_begins_alike() {
        let refs =
            vec![direct("HEAD", "1"), direct("refs/heads/main-2", "2"), direct("refs/heads/main", "3")];
        let listing = RefListing { refs, hash: gix::hash::Kind::Sha1 };
        let chosen = choose(&Reference::Branch("main".into()), &listing).unwrap_or_else(|it| panic!("{it}"));
        assert_eq!(chosen.commit.to_string(), "3".repeat(40));
        assert_eq!(chosen.spec(), "+refs/heads/main:refs/driftless/tip");
        let error = choose(&Reference::Branch("mai".into()), &listing).err();
        assert!(error.is_some_and(|it| it.cause == Cause::BranchNotFound));
    }

    #[test]
    fn the_highest_version_in_a_range_is_followed() {
        let names = ["v1.2.0", "v1.10.0", "v1.11.0-rc.1", "v2.0.0", "nightly", "1.10"];
        let refs = names.iter().map(|it| direct(&tag(it), "1")).collect();
        let listing = RefListing { refs, hash: gix::hash::Kind::Sha1 };
        let of = |range: &str| choose(&Reference::Semver(VersionRange::parse(range).unwrap()), &listing);
        let chosen = of("1.x").unwrap_or_else(|it| panic!("{it}"));
        assert_eq!((chosen.tag.as_deref(), chosen.source.as_str()), (Some("v1.10.0"), "refs/tags/v1.10.0"));
        assert!(of(">=3").is_err_and(|it| it.message.contains("the highest is `v2.0.0`")));
        let none = RefListing { refs: Vec::new(), hash: gix::hash::Kind::Sha1 };
        assert!(choose(&Reference::Semver(VersionRange::parse("*").unwrap()), &none).is_err());
    }

    #[test]
    fn names_that_git_would_not_take_are_refused() {
        for name in ["", "a*", "a..b", "a b", "-:x", "a.lock", "a/"] {
            assert!(check(&Reference::Branch(name.into())).is_err(), "{name}");
        }
        assert!(check(&Reference::Branch("feature/one".into())).is_ok());
        assert!(check(&Reference::Commit(CommitId::from_stored("abc"))).is_err());
    }
}
