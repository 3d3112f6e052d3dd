//! Tests of the choice of the target, and of what is noted of Git.

use driftless_model::Removal;

use super::*;
use crate::{
    context::tests::context,
    desired::tests::{present, stack},
};

#[test]
fn application_is_left_alone_while_git_cannot_be_read() {
    let (context, _folder) = context();
    let mut revisions = Revisions::load(&context);
    let policy = Policy { prune: true, ..Policy::default() };
    let in_git = present("a", &stack("one"), policy);
    let mut target = |desired: &Desired, record: &Record| {
        let target = revisions.target(&context, desired, record).unwrap().unwrap();
        revisions.begin(&context, desired, &target);
        (target.policy.suspended, target.stack.project.clone())
    };
    let record = Record::default();
    assert_eq!(target(&in_git, &record), (false, "one".to_owned()));
    let left = Desired::gone(Arc::new(in_git.rendered().clone()), Arc::default());
    let unread = left.kept(Arc::default(), None);
    assert!(target(&unread, &record).0);
    let removed = Record { removal: Some(Removal::KeepVolumes), ..Record::default() };
    for (desired, record) in [(&left, &record), (&unread, &removed)] {
        assert!(!target(desired, record).0, "it is removed");
    }
}

#[test]
fn newest_stack_keeps_the_commit_that_it_came_with() {
    let (context, _folder) = context();
    let mut revisions = Revisions::load(&context);
    let mut record = Record::default();
    let mut commit_of = |revisions: &mut Revisions, commit: &str, project: &str| {
        revisions.note_newest(&present(commit, &stack(project), Policy::default()), &mut record);
        record.newest.clone().unwrap().commit
    };
    assert_eq!(commit_of(&mut revisions, "a", "one"), "a");
    assert_eq!(commit_of(&mut revisions, "b", "one"), "a", "the commit changes nothing");
    assert_eq!(commit_of(&mut revisions, "c", "two"), "c");
    // Without a record, the stack is known from the revision that is applied.
    let desired = present("c", &stack("two"), Policy::default());
    let target = revisions.target(&context, &desired, &Record::default()).unwrap().unwrap();
    revisions.begin(&context, &desired, &target);
    record.newest = None;
    revisions.note_newest(&present("d", &stack("two"), Policy::default()), &mut record);
    assert_eq!(record.newest.take().unwrap().commit, "c");
    // The application was removed, and this commit restores the same files.
    revisions.is_forgotten = true;
    assert!(revisions.comes_back() && !revisions.comes_back());
    for commit in ["e", "f"] {
        revisions.note_newest(&present(commit, &stack("two"), Policy::default()), &mut record);
        assert_eq!(record.newest.as_ref().unwrap().commit, "e");
    }
    // Git was read without it.
    let left = present("g", &stack("two"), Policy::default());
    revisions.note_newest(&Desired::gone(Arc::new(left.rendered().clone()), Arc::default()), &mut record);
    assert!(record.newest.is_none());
}
