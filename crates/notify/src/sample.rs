//! Incidents for `driftless notify test`.

use std::{collections::BTreeSet, time::Duration};

use driftless_model::{Incident, IncidentKind, Timestamp, Urgency};

/// An incident as it could be, of this kind. It began 12 minutes before `now`, and has the number 0.
pub fn sample(kind: IncidentKind, now: Timestamp) -> Incident {
    let (urgency, message, advice) = match kind {
        IncidentKind::SyncFailed => (
            Urgency::Critical,
            "revision 7: web: image registry.example.com/shop:1.5 cannot be pulled: manifest unknown",
            "correct it in Git, or go back with `driftless rollback shop`",
        ),
        IncidentKind::Degraded => (
            Urgency::Critical,
            "web.2 is not ready: GET /healthz answers 503",
            "`driftless status shop` names the containers, `driftless rollback shop` goes back to the last good revision",
        ),
        IncidentKind::DriftFound => (
            Urgency::Warning,
            "shop-web-1: state is exited, Git says running",
            "undo it with `driftless sync shop --heal`, or bring it to Git: `driftless drift shop`",
        ),
        IncidentKind::DriftNotHealed => (
            Urgency::Warning,
            "shop-web-1: resources.memory is 64 MiB, Git says 128 MiB",
            "change it in Git, or find out who changes it: `driftless drift shop`",
        ),
        IncidentKind::PruneHeld => (
            Urgency::Warning,
            "this commit removes 3 of 4 workloads",
            "if that is meant, confirm it with `driftless sync shop --prune`",
        ),
        IncidentKind::RolledBack => (
            Urgency::Info,
            "pinned to revision 6 (3f2a9c1d0b7e): orders fail",
            "new commits are not applied until `driftless resume shop`",
        ),
        IncidentKind::GitUnreachable => (
            Urgency::Warning,
            "could not fetch: git.example.com is unreachable: connection refused",
            "the last good commit is kept; `driftless status` has the error",
        ),
        IncidentKind::EngineUnreachable => (
            Urgency::Critical,
            "the engine does not answer: connection refused",
            "check it with `docker info` and `systemctl status docker` on the host",
        ),
        IncidentKind::ImageAvailable => (
            Urgency::Info,
            "postgres:17 has a newer image (sha256:9f86d081884c), which is only reported",
            "deploy it with `driftless sync shop --update-images`, or always, with `imageUpdate: digest`",
        ),
        IncidentKind::RecoverRequired => (
            Urgency::Critical,
            "the state directory was lost; pins and suspensions may be lost, so no new commit is applied",
            "check it with `driftless status shop`, then run `driftless recover`",
        ),
        IncidentKind::ImageCheckFailed => (
            Urgency::Warning,
            "could not look for a newer image of ghcr.io/team/shop:prod: the registry refuses the login (401)",
            "check the image and the login of its registry; `driftless sync shop` asks again",
        ),
        IncidentKind::CredentialExpiring => (
            Urgency::Warning,
            "the certificate /etc/driftless/tls/fullchain.pem (tls) expires in 7 days, at 2026-01-08T12:00:00Z",
            "renew it: a new file is read without a restart",
        ),
        IncidentKind::HostLost => (
            Urgency::Critical,
            "last heard at 2026-01-01T11:48:00Z",
            "check the host and its agent; `driftless fleet remove nas` forgets a host that is gone for good",
        ),
    };
    let is_of_host = kind == IncidentKind::HostLost;
    let is_of_agent = matches!(kind, IncidentKind::EngineUnreachable | IncidentKind::CredentialExpiring);
    let is_of_app = !is_of_host && !is_of_agent && kind != IncidentKind::GitUnreachable;
    let since = Timestamp(now.0.saturating_sub(12 * 60 * 1000));
    Incident {
        number: 0,
        kind,
        urgency,
        app: is_of_app.then(|| "shop".into()),
        repository: (!is_of_agent && !is_of_host).then(|| "infra".to_owned()),
        host: is_of_host.then(|| "nas".to_owned()),
        message: message.to_owned(),
        notified_message: None,
        advice: advice.to_owned(),
        about: BTreeSet::new(),
        since,
        opened: Some(since.after(Duration::from_mins(5))),
        notified: None,
        ended: Some(now),
        unmanaged: false,
        receivers: BTreeSet::new(),
    }
}
