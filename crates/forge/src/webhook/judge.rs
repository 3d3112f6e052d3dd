//! Whether a delivery is about the followed reference of a repository.

use driftless_config::{Reference, Repository};
use driftless_model::VersionRange;

use super::{
    notice::{EventKind, Moved, Notice},
    origin::{self, Origin},
};

/// The decision about a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryDecision {
    /// Fetch. The remark is for people and may be empty.
    Fetch {
        moved: Option<Moved>,
        /// Whether another branch than the followed one may have moved.
        maybe_other_branch: bool,
        remark: String,
    },
    /// Ask the registries of these images.
    AskRegistries {
        images: Vec<String>,
    },
    Ignore {
        moved: Option<Moved>,
        why: String,
    },
}

/// Compares a delivery with the followed reference. Full reference names are compared, so a tag with the name of the
/// branch does not match.
pub fn judge(notice: &Notice, repository: &Repository) -> DeliveryDecision {
    if notice.kind == EventKind::Image && !notice.images.is_empty() {
        return DeliveryDecision::AskRegistries { images: notice.images.clone() };
    }
    if notice.kind != EventKind::Push {
        let why = format!("the event `{}` moves no reference", notice.event);
        return DeliveryDecision::Ignore { moved: None, why };
    }
    let remark = match origin::compare(&Origin::of_url(&repository.url), &notice.origins) {
        origin::Match::Same | origin::Match::Unknown => String::new(),
        origin::Match::OtherHost { named } => {
            format!("the payload calls the host `{named}`; the configured URL is what is fetched from")
        }
        origin::Match::Other { named } => {
            let why = format!(
                "it is about `{named}`, and `{}` is what this webhook is for: if it was renamed, write its new URL",
                repository.url
            );
            return DeliveryDecision::Ignore { moved: notice.moved.first().cloned(), why };
        }
    };
    if notice.moved.is_empty() {
        return DeliveryDecision::Fetch { moved: None, maybe_other_branch: false, remark };
    }
    let is_followed = |moved: &&Moved| match followed(&repository.reference, notice) {
        Followed::One(name) => moved.reference == name,
        Followed::AnyBranch => moved.reference.starts_with("refs/heads/"),
        Followed::Versions(range) => {
            let tag = moved.reference.strip_prefix("refs/tags/");
            tag.and_then(VersionRange::version_of).is_some_and(|it| range.matches(&it))
        }
        Followed::Nothing => false,
    };
    let mut ours = notice.moved.iter().filter(is_followed);
    match ours.clone().find(|it| !it.deleted).or_else(|| ours.next()) {
        Some(moved) if moved.deleted => {
            let why = format!("`{}` was deleted; nothing is removed because of that", moved.reference);
            DeliveryDecision::Ignore { moved: Some(moved.clone()), why }
        }
        Some(moved) => {
            // The payload does not name the default branch.
            let maybe_other_branch = matches!(followed(&repository.reference, notice), Followed::AnyBranch);
            DeliveryDecision::Fetch { moved: Some(moved.clone()), maybe_other_branch, remark }
        }
        None => {
            let moved = notice.moved.first().cloned();
            let named = moved.as_ref().map(|it| it.reference.clone()).unwrap_or_default();
            let why = match followed(&repository.reference, notice) {
                Followed::One(name) => format!("it is about `{named}`, and `{name}` is followed"),
                Followed::AnyBranch => {
                    format!("it is about `{named}`, and the default branch is followed")
                }
                Followed::Versions(range) => {
                    format!("it is about `{named}`, and tags are followed that are versions in `{range}`")
                }
                Followed::Nothing => "a fixed commit is followed, which never moves".to_owned(),
            };
            DeliveryDecision::Ignore { moved, why }
        }
    }
}

/// The full name of the followed reference; `None` for the default branch or a fixed commit.
pub fn full_name(reference: &Reference) -> Option<String> {
    match reference {
        Reference::Branch(name) => Some(branch(name)),
        Reference::Tag(name) => Some(format!("refs/tags/{}", name.trim_start_matches("refs/tags/"))),
        Reference::Head | Reference::Semver(_) | Reference::Commit(_) => None,
    }
}

enum Followed {
    One(String),
    AnyBranch,
    Versions(VersionRange),
    Nothing,
}

fn followed(reference: &Reference, notice: &Notice) -> Followed {
    match (reference, &notice.default_branch) {
        (Reference::Head, Some(name)) => Followed::One(branch(name)),
        (Reference::Head, None) => Followed::AnyBranch,
        (Reference::Semver(range), _) => Followed::Versions(range.clone()),
        (Reference::Commit(_), _) => Followed::Nothing,
        (Reference::Branch(_) | Reference::Tag(_), _) => {
            full_name(reference).map_or(Followed::Nothing, Followed::One)
        }
    }
}

fn branch(name: &str) -> String {
    format!("refs/heads/{}", name.trim_start_matches("refs/heads/"))
}

#[cfg(test)]
mod tests {
    use driftless_model::{CommitId, RepoUrl};

    use super::*;

    fn repository(url: &str, reference: Reference) -> Repository {
        Repository::new(RepoUrl::parse(url).unwrap(), "", reference)
    }

    fn push(reference: &str, deleted: bool) -> Notice {
        let moved = Moved { reference: reference.to_owned(), commit: None, deleted };
        Notice { event: "push".into(), kind: EventKind::Push, moved: vec![moved], ..Notice::default() }
    }

    fn rings(notice: &Notice, reference: Reference) -> bool {
        let repository = repository("https://git.example.com/me/infra.git", reference);
        matches!(judge(notice, &repository), DeliveryDecision::Fetch { .. })
    }

    #[test]
    fn pushed_image_is_looked_at_and_not_fetched() {
        let images = vec!["ghcr.io/team/web:prod".to_owned()];
        let pushed = Notice { kind: EventKind::Image, images: images.clone(), ..Notice::default() };
        let repository = repository("https://git.example.com/me/infra.git", Reference::Head);
        assert_eq!(judge(&pushed, &repository), DeliveryDecision::AskRegistries { images });
        let none = Notice { kind: EventKind::Image, ..Notice::default() };
        assert!(matches!(judge(&none, &repository), DeliveryDecision::Ignore { .. }));
    }

    #[test]
    fn full_names_are_compared() {
        let main = || Reference::Branch("main".into());
        assert!(rings(&push("refs/heads/main", false), main()));
        for other in ["refs/tags/main", "refs/heads/main-2", "main", "refs/heads/feature/main", ""] {
            assert!(!rings(&push(other, false), main()), "{other}");
        }
        assert!(rings(&push("refs/tags/v1", false), Reference::Tag("v1".into())));
        assert!(!rings(&push("refs/heads/v1", false), Reference::Tag("v1".into())));
        assert!(!rings(
            &push("refs/heads/main", false),
            Reference::Commit(CommitId::from_stored("a".repeat(40)))
        ));
        let versions = || Reference::Semver(VersionRange::parse("1.x").unwrap());
        assert!(rings(&push("refs/tags/v1.2.3", false), versions()));
        for other in ["refs/tags/v2.0.0", "refs/tags/latest", "refs/heads/v1.2.3"] {
            assert!(!rings(&push(other, false), versions()), "{other}");
        }
    }

    #[test]
    fn without_a_branch_the_repositorys_own_default_counts() {
        let known = Notice { default_branch: Some("main".into()), ..push("refs/heads/main", false) };
        assert!(rings(&known, Reference::Head));
        let other = Notice { default_branch: Some("trunk".into()), ..push("refs/heads/main", false) };
        assert!(!rings(&other, Reference::Head));
        assert!(rings(&push("refs/heads/any", false), Reference::Head));
        assert!(!rings(&push("refs/tags/any", false), Reference::Head));
    }

    #[test]
    fn pushed_branch_may_be_another_one_than_the_default() {
        let tip = CommitId::from_stored("a".repeat(40));
        let pushed = |default_branch: Option<&str>| {
            let mut notice = push("refs/heads/main", false);
            notice.moved[0].commit = Some(tip.clone());
            Notice { default_branch: default_branch.map(str::to_owned), ..notice }
        };
        for (notice, reference, expected) in [
            (pushed(Some("main")), Reference::Head, false),
            (pushed(None), Reference::Branch("main".into()), false),
            (pushed(None), Reference::Head, true),
        ] {
            let decision = judge(&notice, &repository("https://git.example.com/me/infra.git", reference));
            let DeliveryDecision::Fetch { moved: Some(moved), maybe_other_branch, .. } = decision else {
                panic!("{decision:?}")
            };
            assert_eq!((moved.reference.as_str(), moved.commit.as_ref()), ("refs/heads/main", Some(&tip)));
            assert_eq!(maybe_other_branch, expected);
        }
    }

    #[test]
    fn deletions_and_other_repositories_are_ignored() {
        assert!(!rings(&push("refs/heads/main", true), Reference::Branch("main".into())));
        let other = Notice {
            origins: vec![Origin::of("https://git.example.com/me/shop.git")],
            ..push("refs/heads/main", false)
        };
        let decision = judge(&other, &repository("https://git.example.com/me/infra.git", Reference::Head));
        let DeliveryDecision::Ignore { why, .. } = decision else { panic!("{decision:?}") };
        assert!(why.contains("me/shop") && why.contains("me/infra"), "{why}");
    }
}
