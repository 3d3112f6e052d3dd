//! The rule of `driftless fleet wait`: whether all hosts run a commit.

use driftless_model::{CommitId, SyncStatus};

use crate::view::{HostState, HostView};

/// The state that hosts are to reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetGoal {
    /// The beginning of the id of a commit, in lower case.
    pub commit: String,
    /// Whether applications must also be healthy.
    pub is_healthy: bool,
    /// Only this repository, and only hosts that follow it. `None`: every host follows the commit in some repository.
    pub repository: Option<String>,
    /// Only these hosts. Empty: all.
    pub hosts: Vec<String>,
}

/// One sentence for each host that has not reached the goal. Empty: the goal is reached.
pub fn unreached(hosts: &[HostView], goal: &FleetGoal) -> Vec<String> {
    let mut sentences = Vec::new();
    let (mut judged, mut released) = (0, Vec::new());
    for host in hosts.iter().filter(|host| goal.hosts.is_empty() || goal.hosts.contains(&host.name)) {
        match judge(host, goal) {
            Judgement::Elsewhere => continue,
            Judgement::Released => {
                released.push(format!("{}: everything was released there", host.name));
                continue;
            }
            Judgement::Reached => {}
            Judgement::Unreached(why) => sentences.push(format!("{}: {why}", host.name)),
        }
        judged += 1;
    }
    for name in goal.hosts.iter().filter(|name| !hosts.iter().any(|host| host.name == **name)) {
        sentences.push(format!("{name}: it has never reported"));
    }
    if judged == 0 && sentences.is_empty() {
        sentences = released;
    }
    if judged == 0 && sentences.is_empty() {
        sentences.push(match &goal.repository {
            Some(repository) => format!("no host follows the repository {repository}"),
            None => "no host has reported".to_owned(),
        });
    }
    sentences
}

enum Judgement {
    Reached,
    /// With the reason.
    Unreached(String),
    /// The host does not follow the repository.
    Elsewhere,
    /// Everything was released on the host, so it will not reach any commit.
    Released,
}

fn judge(host: &HostView, goal: &FleetGoal) -> Judgement {
    let Some(report) = &host.report else { return Judgement::Unreached(host.reason.clone()) };
    let of_goal: Vec<_> = report
        .repositories
        .iter()
        .filter(|repository| goal.repository.as_ref().is_none_or(|name| *name == repository.name))
        .collect();
    if of_goal.is_empty() && goal.repository.is_some() && report.unread().is_none() {
        return Judgement::Elsewhere;
    }
    if matches!(host.state, HostState::Lost | HostState::Stale) {
        return Judgement::Unreached(host.reason.clone());
    }
    if report.released {
        return Judgement::Released;
    }
    let is_wanted =
        |commit: Option<&CommitId>| commit.is_some_and(|id| id.as_str().starts_with(&goal.commit));
    let with_commit: Vec<_> =
        of_goal.iter().filter(|repository| is_wanted(repository.commit.as_ref())).collect();
    if with_commit.is_empty() {
        let known: Vec<&str> = of_goal
            .iter()
            .map(|repository| repository.commit.as_ref().map_or("no commit yet", CommitId::short))
            .collect();
        return Judgement::Unreached(match known.as_slice() {
            [] => "the agent has just started".to_owned(),
            known => format!("the newest commit there is {}", known.join(", ")),
        });
    }
    for repository in with_commit {
        let of_repository = report.applications.iter().filter(|it| it.repository == repository.name);
        for application in of_repository {
            let is_there = application.sync == SyncStatus::Synced && is_wanted(application.commit.as_ref());
            if !is_there || (goal.is_healthy && !application.is_healthy()) {
                let state = format!("{:?} and {:?}", application.sync, application.health);
                let name = &application.name;
                return Judgement::Unreached(match application.message.as_str() {
                    "" => format!("{name} is {state}"),
                    message => format!("{name} is {state}: {message}"),
                });
            }
        }
        if let Some(unobserved) = report.unobserved(repository) {
            return Judgement::Unreached(unobserved);
        }
    }
    Judgement::Reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        report::{ApplicationReport, HostReport, RepositoryReport},
        view::{LastReport, view},
    };
    use driftless_model::{AppName, HealthStatus, Timestamp};

    const NOW: Timestamp = Timestamp(100_000_000);

    fn host(name: &str, commit: &str, health: HealthStatus) -> LastReport {
        let id = Some(CommitId::from_stored(commit.repeat(40)));
        let application = ApplicationReport {
            name: AppName::from("shop"),
            repository: "infra".to_owned(),
            sync: SyncStatus::Synced,
            health,
            suspended: None,
            pinned: None,
            well: false,
            revision: Some(1),
            commit: id.clone(),
            failed: None,
            images: None,
            failed_images: None,
            revision_commit: None,
            message: String::new(),
            drift: 0,
        };
        let repository = RepositoryReport {
            name: "infra".to_owned(),
            commit: id,
            applications: 1,
            ..RepositoryReport::default()
        };
        let report = HostReport {
            host: name.to_owned(),
            repositories: vec![repository],
            applications: vec![application],
            ..HostReport::default()
        };
        LastReport { report: std::sync::Arc::new(report), received: NOW, conflict: None }
    }

    fn goal() -> FleetGoal {
        FleetGoal { commit: "aaaaaaa".to_owned(), is_healthy: true, ..FleetGoal::default() }
    }

    #[test]
    fn all_hosts_must_run_the_commit() {
        let (good, old) = (host("a", "a", HealthStatus::Healthy), host("b", "b", HealthStatus::Healthy));
        assert_eq!(unreached(&view(vec![good.clone()], &[], NOW), &goal()), Vec::<String>::new());
        let both = view(vec![good.clone(), old], &[], NOW);
        assert_eq!(unreached(&both, &goal()), ["b: the newest commit there is bbbbbbbbbbbb"]);
        let only = FleetGoal { hosts: vec!["a".to_owned()], ..goal() };
        assert!(unreached(&both, &only).is_empty());
        let missing = view(vec![good], &["c".to_owned()], NOW);
        assert_eq!(unreached(&missing, &goal()), ["c: it is expected and has never reported"]);
    }

    #[test]
    fn healthy_is_asked_only_if_wanted() {
        let sick = view(vec![host("a", "a", HealthStatus::Degraded)], &[], NOW);
        assert_eq!(unreached(&sick, &goal()), ["a: shop is Synced and Degraded"]);
        assert!(unreached(&sick, &FleetGoal { is_healthy: false, ..goal() }).is_empty());
    }

    #[test]
    fn suspended_job_keeps_no_host_from_the_goal() {
        let mut last = host("a", "a", HealthStatus::Suspended);
        // The whole application is suspended, or an older agent does not say more.
        let suspended = view(vec![last.clone()], &[], NOW);
        assert_eq!(unreached(&suspended, &goal()), ["a: shop is Synced and Suspended"]);
        std::sync::Arc::make_mut(&mut last.report).applications[0].well = true;
        assert!(unreached(&view(vec![last], &[], NOW), &goal()).is_empty());
    }

    #[test]
    fn every_repository_with_the_commit_counts() {
        let mut last = host("a", "a", HealthStatus::Healthy);
        let other = RepositoryReport { name: "other".to_owned(), ..last.report.repositories[0].clone() };
        let sick = ApplicationReport {
            name: AppName::from("mail"),
            repository: "other".to_owned(),
            health: HealthStatus::Degraded,
            ..last.report.applications[0].clone()
        };
        std::sync::Arc::make_mut(&mut last.report).repositories.push(other);
        std::sync::Arc::make_mut(&mut last.report).applications.push(sick);
        let hosts = view(vec![last], &[], NOW);
        assert_eq!(unreached(&hosts, &goal()), ["a: mail is Synced and Degraded"]);
        let only = FleetGoal { repository: Some("infra".to_owned()), ..goal() };
        assert!(unreached(&hosts, &only).is_empty());
    }

    #[test]
    fn host_that_has_not_observed_all_has_not_reached_it() {
        let mut last = host("a", "a", HealthStatus::Healthy);
        std::sync::Arc::make_mut(&mut last.report).repositories[0].applications = 2;
        let hosts = view(vec![last.clone()], &[], NOW);
        assert_eq!(unreached(&hosts, &goal()), ["a: 1 of 2 applications of infra are observed"]);
        std::sync::Arc::make_mut(&mut last.report).repositories.clear();
        let started = view(vec![last], &[], NOW);
        assert_eq!(unreached(&started, &goal()), ["a: the agent has just started"]);
        // It does not say yet whether it follows the repository.
        let of_infra = FleetGoal { repository: Some("infra".to_owned()), ..goal() };
        assert_eq!(unreached(&started, &of_infra), ["a: the agent has just started"]);
    }

    #[test]
    fn released_host_is_not_awaited() {
        let mut last = host("b", "b", HealthStatus::Healthy);
        let report = std::sync::Arc::make_mut(&mut last.report);
        (report.repositories, report.applications, report.released) = (Vec::new(), Vec::new(), true);
        let both = view(vec![host("a", "a", HealthStatus::Healthy), last.clone()], &[], NOW);
        assert_eq!(unreached(&both, &goal()), Vec::<String>::new());
        let of_infra = FleetGoal { repository: Some("infra".to_owned()), ..goal() };
        assert_eq!(unreached(&both, &of_infra), Vec::<String>::new());
        // Alone it proves nothing about the commit.
        let alone = view(vec![last], &[], NOW);
        assert_eq!(unreached(&alone, &goal()), ["b: everything was released there"]);
        assert_eq!(unreached(&alone, &of_infra), ["no host follows the repository infra"]);
    }

    #[test]
    fn stale_host_has_not_reached_the_goal() {
        let later = Timestamp(NOW.0 + 100_000);
        let hosts = view(vec![host("a", "a", HealthStatus::Healthy)], &[], later);
        assert_eq!(unreached(&hosts, &goal()).len(), 1);
    }

    #[test]
    fn nobody_is_not_everybody() {
        assert_eq!(unreached(&[], &goal()), ["no host has reported"]);
        let hosts = view(vec![host("a", "a", HealthStatus::Healthy)], &[], NOW);
        let other = FleetGoal { repository: Some("other".to_owned()), ..goal() };
        assert_eq!(unreached(&hosts, &other), ["no host follows the repository other"]);
        let named = FleetGoal { hosts: vec!["z".to_owned()], ..goal() };
        assert_eq!(unreached(&hosts, &named), ["z: it has never reported"]);
    }
}
