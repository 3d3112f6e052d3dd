//! Plays `scenarios/*.txt` against the in-memory Docker. The snapshot of each script is the script with the
//! planner's answers written in: read those files as the specification.
//!
//! Frequent complaints of users of such agents and of Compose, and the scenario that shows the right behaviour for each:
//! a script, a test of that name, or the projects of `differential`. That all of them are there is checked by `docs`.
//!
//! | complaint | where |
//! |---|---|
//! | it deploys again and again, and nobody knows why | `recreate-rules.txt`, and the cause in brackets of every step; `differential` |
//! | taken down by hand, and then a commit: it never comes to rest | `down-by-hand.txt` |
//! | with a mounted file of the repository it never comes to rest | `files-in-place`, `secrets`, `binds` in `differential` |
//! | a commit that changes nothing, or another file, restarts everything | `push_is_deployed_and_unrelated_push_touches_nothing` |
//! | one commit deploys all applications, stopped ones too | `unrelated_commit_creates_no_revision_and_no_call`, `a_suspended_application_is_watched_and_not_touched` |
//! | each poll or each restart of the agent deploys again | `differential`, `poll_finds_a_push_and_only_lists_otherwise`, `a_restart_of_the_agent_restarts_no_container`, `a_lost_database_restarts_nothing` |
//! | an upgrade of the agent, or another default of its labels, recreates every container | `every_project_has_the_hashes_that_it_had` |
//! | commit or default labels are part of what a container is | `comments_change_no_spec_hash` |
//! | a project that is down, or one started with Compose, is taken for drift for ever | `adopted_project_needs_no_write_calls` |
//! | short-lived containers of others count as drift | `foreign-holders.txt`, `other_projects_and_one_off_containers_are_not_touched` |
//! | healing tells everybody again and again | `a_fight_over_one_field_is_slowed_down_and_called_by_its_name`, `invalid_commit_gets_one_failure_status_with_location` |
//! | a crash loop is a success, and then drift, and so on | `crash-loop.txt`, `dependency-that-exits.txt` |
//! | deployments pile up behind a slow one | `third-version-half-way.txt`, `a_slow_pull_holds_up_neither_healing_nor_a_newer_commit`, `a_sync_is_answered_at_once_while_the_engine_takes_its_time` |
//! | what was stopped on purpose comes back | `suspended.txt`, `self-heal-off.txt` |
//! | one change restarts the whole stack | `recreate-rules.txt`, `shared-network.txt` |
//! | a changed mounted file replaces nothing, or too much | `changed_file_replaces_only_containers_that_mount_it`, `changed_file_changes_the_hash_of_its_workloads_only` |
//! | another content written into the manifest itself changes nothing | `changed_content_of_a_config_changes_the_spec_hash` |
//! | a changed configuration restarts a container that could have read it again | `in-place.txt`, `a_changed_file_is_read_by_the_very_container_that_ran_before` |
//! | mounted files vanish or go stale with a later commit, a restart by hand, a reboot or another clone | `mounted_files_survive_restarts_and_a_lost_mirror` |
//! | mounted files become folders, or change under a running container | `half_written_content_is_written_again`, `old_unused_contents_are_removed`, `mount_of_a_missing_file_is_an_error_or_a_warning` |
//! | every application clones the whole repository | `mounted_files_survive_restarts_and_a_lost_mirror` |
//! | data next to the manifest is lost with a sync | `tracked_files_follow_git_and_others_stay` |
//! | a relative path means another folder than it did with Compose | `data_of_a_relative_path_are_never_left_behind` |
//! | an agent in a container mounts paths that the host has not | `files_of_an_agent_in_a_container_exist_on_the_host`, `path_unknown_to_the_host_is_refused_with_the_mount` |
//! | a changed subnet recreates the network and gives all its containers other addresses | `recreate-rules.txt`, `networks.txt` |
//! | scaling down keeps the lowest numbers instead of what is up to date | `recreate-rules.txt` |
//! | scaling up recreates existing instances | `recreate-rules.txt`, `scale.txt` |
//! | a bind mount is taken for a changed volume | `recreate-rules.txt` |
//! | another external volume does not move the container | `recreate-rules.txt` |
//! | a missing external network stops everything | `external-missing.txt` |
//! | who waits for a dependency that has ended waits for ever | `dependency-that-exits.txt` |
//! | a `#` in `.env` is part of the value, or cuts it off where it is none | `dotenv_files_are_parsed_as_in_compose`, `hash_after_a_space_starts_a_comment_in_dotenv` |
//! | a command after the start is forgotten when the agent dies | `hooks.txt` |
//! | a changed volume is reported as deployed, or loses its data | `recreate-rules.txt`, `anonymous-volumes.txt` |
//!
//! After every step of every script it is checked that availability and size stay within their limits, that
//! nothing foreign and no volume is touched, and that Docker refuses no step; see `stage`.

use std::{collections::BTreeMap, fmt::Write, fs, sync::Arc, time::Duration};

use driftless_model::{
    AgentId, Attachment, Attempt, Build, CanaryStep, CommitId, Completion, Condition, ContainerId, ContentId,
    Dependency, DeviceRequest, FailedCommit, FailureAction, FileChange, FileChangeKind, FilesystemDrift,
    Health, Hook, IgnoredField, InPlace, Mount, MountSource, Namespace, Network, NetworkMode, OnChange,
    Other, Peer, Port, PortRange, Protocol, PullPolicy, Readiness, Replacement, RestartPolicy, StackHash,
    State, Strategy, Subject, Visit, Volume, VolumesFrom, Workload, WorkloadName,
};
use driftless_plan::{Plan, promote};

use crate::fixture::{NOON, Stage, listing, stack, workload};

#[test]
fn scenarios_unfold_as_written() {
    insta::glob!("scenarios/*.txt", |path| {
        insta::assert_snapshot!(play(&fs::read_to_string(path).unwrap()));
    });
}

fn play(script: &str) -> String {
    let mut stage = Stage::new(stack([]));
    let mut out = String::new();
    for line in script.lines() {
        writeln!(out, "> {line}").unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] | ["#", ..] => {}
            ["round"] => out.push_str(&answer(&mut stage)),
            // The same, with the health of the workloads, and why the commit has failed.
            ["health"] => {
                let plan = stage.round();
                out.push_str(&told(&stage, &plan));
                for (name, it) in stage.assess(&plan).workloads {
                    writeln!(out, "{name}: {:?} {}: {}", it.health, it.reason, it.message).unwrap();
                }
                writeln!(out, "failure: {}", stage.failure(&plan).unwrap_or_default()).unwrap();
            }
            // The agent ends after so many steps.
            ["cut-short", steps] => {
                let plan = stage.round_cut_short(steps.parse().unwrap(), |_| 0);
                out.push_str(&told(&stage, &plan));
            }
            ["settle"] => out.push_str(&settle(&mut stage)),
            ["volumes-of-instances"] => {
                for it in stage.world.observed.instances.values() {
                    writeln!(out, "{} has {:?}", it.name, it.anonymous_volumes).unwrap();
                }
            }
            // The contents that each container has last read, and the number of times.
            ["read"] => {
                for it in stage.world.observed.instances.values() {
                    let Some((files, times)) = stage.told.get(&it.id) else { continue };
                    let files: Vec<&str> = files.values().map(|it| it.content.0.as_str()).collect();
                    writeln!(out, "{} has read {} ({times})", it.name, files.join(" and ")).unwrap();
                }
            }
            ["forget-all"] => stage.record = Default::default(),
            ["ps"] => out.push_str(&listing(&stage.world.observed)),
            ["steps-take", time] => {
                stage.step_time = Duration::from_secs(time.trim_end_matches('s').parse().unwrap());
            }
            ["tick", pause] => stage.tick(Duration::from_secs(pause.trim_end_matches('s').parse().unwrap())),
            _ if in_git(&mut stage, &words)
                || on_the_host(&mut stage, &words)
                || by_hand(&mut stage, &words)
                || by_request(&mut stage, &words) => {}
            _ => panic!("not understood: {line}"),
        }
    }
    out
}

/// One round and what it says.
fn answer(stage: &mut Stage) -> String {
    let plan = stage.round();
    told(stage, &plan)
}

fn told(stage: &Stage, plan: &Plan) -> String {
    let mut out = format!("[{}s]", stage.now.since(NOON).as_secs());
    if plan.is_settled() {
        out.push_str(" settled");
    }
    out.push('\n');
    write!(out, "{plan}").unwrap();
    for drift in &plan.drifts {
        writeln!(
            out,
            "drift: {} {} {} is {} ({:?})",
            drift.kind, drift.object, drift.field, drift.found, drift.action
        )
        .unwrap();
    }
    out
}

/// Rounds, ten seconds apart, until all is well or nothing moves.
fn settle(stage: &mut Stage) -> String {
    let (mut out, mut last) = (String::new(), None);
    for _ in 0..60 {
        // A deadline that moves with the time is no change.
        let plan = Plan { look_again: None, ..stage.round() };
        out.push_str(&told(stage, &plan));
        if plan.is_settled() || (plan.steps.is_empty() && last.as_ref() == Some(&plan)) {
            return out;
        }
        last = Some(plan);
        stage.tick(Duration::from_secs(10));
    }
    panic!("it never settles:\n{out}");
}

/// Requests to the agent.
fn by_request(stage: &mut Stage, words: &[&str]) -> bool {
    let record = &mut stage.record;
    match *words {
        ["roll-again", name] => {
            let mine =
                stage.world.observed.instances.values().filter(|it| it.instance.workload.as_str() == name);
            record.replaced.extend(mine.map(|it| (it.id.clone(), Replacement::Restart)));
            record.progress.remove(&name.into());
        }
        ["delete-pod", name] => {
            let found = stage.world.observed.instances.values().find(|it| it.name == name).unwrap();
            record.replaced.insert(found.id.clone(), Replacement::Delete);
        }
        ["promote", name] => {
            let name = WorkloadName::from(name);
            let workload = stage.stack.workloads[&name].clone();
            assert!(promote(record, Subject { name: &name, workload: &workload }, false));
        }
        ["promote-full", name] => {
            let name = WorkloadName::from(name);
            let workload = stage.stack.workloads[&name].clone();
            assert!(promote(record, Subject { name: &name, workload: &workload }, true));
        }
        ["hold", name] => drop(record.paused.insert(name.into())),
        ["release", name] => drop(record.paused.remove(&name.into())),
        ["fails"] => {
            record.failed = Some(FailedCommit {
                commit: CommitId::from_stored("2".repeat(40)),
                stack: StackHash::of(&stage.stack),
                revision: 2,
                reason: "web has made no progress".to_owned(),
                at: stage.now,
                back_to: None,
                was_reached: false,
                action: None,
                images: None,
            });
        }
        ["retry"] => record.failed = None,
        ["prune"] => record.prune = Some(StackHash::of(&stage.stack)),
        _ => return false,
    }
    record.settled = None;
    true
}

/// The content of Git.
fn in_git(stage: &mut Stage, words: &[&str]) -> bool {
    match *words {
        ["want", name, image, size, ref options @ ..] => {
            let mut it = workload(image, size.trim_start_matches('x').parse().unwrap());
            options.iter().for_each(|option| set(&mut it, option));
            stage.stack.workloads.insert(name.into(), it);
        }
        ["drop", name] => drop(stage.stack.workloads.remove(&name.into())),
        ["network", name, ref driver @ ..] => {
            let driver = driver.first().map(|it| (*it).to_owned());
            let network = Network { key: name.to_owned(), driver, ..Network::default() };
            stage.stack.networks.insert(name.to_owned(), network);
        }
        ["drop-network", name] => drop(stage.stack.networks.remove(name)),
        ["external-network", name] => {
            let network = Network { key: name.to_owned(), external: true, ..Network::default() };
            stage.stack.networks.insert(name.to_owned(), network);
        }
        ["volume", name, ref driver @ ..] => {
            let driver = driver.first().map(|it| (*it).to_owned());
            let volume = Volume { key: name.to_owned(), driver, ..Volume::default() };
            stage.stack.volumes.insert(name.to_owned(), volume);
        }
        ["subnet", name, subnet] => {
            let network = stage.stack.networks.get_mut(name).unwrap();
            network.ipam = vec![(Some(subnet.to_owned()), None, None)];
        }
        ["option", volume, key, value] => {
            let volume = stage.stack.volumes.get_mut(volume).unwrap();
            volume.options.insert(key.to_owned(), value.to_owned());
        }
        ["drop-volume", name] => drop(stage.stack.volumes.remove(name)),
        ["external-volume", name] => {
            let volume = Volume { key: name.to_owned(), external: true, ..Volume::default() };
            stage.stack.volumes.insert(name.to_owned(), volume);
        }
        ["self-heal", it] => stage.policy.self_heal = it == "on",
        ["filesystem-drift", it] => {
            stage.policy.filesystem_drift = match it {
                "report" => FilesystemDrift::Report,
                "revert" => FilesystemDrift::Revert,
                "off" => FilesystemDrift::Off,
                other => panic!("no such policy: {other}"),
            };
        }
        ["suspend"] => stage.policy.suspended = true,
        ["resume"] => stage.policy.suspended = false,
        _ => return false,
    }
    true
}

fn set(it: &mut Workload, option: &str) {
    let (key, value) = option.split_once('=').unwrap_or((option, ""));
    let number = || value.parse::<u32>().unwrap();
    let mount = |target: &str, source| Mount { target: target.to_owned(), source, read_only: false };
    match key {
        "surge" | "unavailable" => {
            let Strategy::RollingUpdate { max_surge, max_unavailable } = &mut it.strategy else {
                panic!("it does not roll")
            };
            *(if key == "surge" { max_surge } else { max_unavailable }) = number();
        }
        "recreate" => it.strategy = Strategy::Recreate,
        "protected" => drop(it.container.labels.insert("driftless.prune".to_owned(), "false".to_owned())),
        "paused" => it.paused = true,
        "name" => it.container_name = Some(value.to_owned()),
        "on-failure" => {
            it.failure.action = Some(match value {
                "pause" => FailureAction::Pause,
                "continue" => FailureAction::Continue,
                "rollback" => FailureAction::Rollback,
                other => panic!("no such action: {other}"),
            });
        }
        // In percent.
        "tolerate" => it.failure.max_ratio = Some(number() * 10_000),
        "ignore" => drop(it.ignore_differences.insert(IgnoredField::parse(value).unwrap())),
        // `canary=20%:10m,50%`
        "canary" => {
            let step = |text: &str| CanaryStep::parse(&text.replace(':', " for ")).unwrap();
            it.canary = value.split(',').map(step).collect();
        }
        "wave" => it.wave = value.parse().unwrap(),
        "minready" => it.min_ready = Duration::from_secs(number().into()),
        "env" => drop(it.container.env.insert("VALUE".to_owned(), Some(value.to_owned()))),
        "memory" => it.container.resources.memory = Some(u64::from(number()) << 20),
        "job" => (it.completion, it.container.restart) = (Completion::OnSuccess, RestartPolicy::No),
        "pull" => it.pull = PullPolicy::Always,
        "build" => it.build = Some(Build { context: value.to_owned(), ..Build::default() }),
        "port" => {
            let (ip, value) = value.rsplit_once(':').map_or((None, value), |(ip, port)| (Some(ip), port));
            let host = Some(PortRange::one(value.parse().unwrap()));
            let host_ip = ip.map(|it| it.parse().unwrap());
            it.container.ports.push(Port { container: 80, protocol: Protocol::Tcp, host_ip, host });
        }
        "bind" => {
            let source =
                MountSource::Bind { path: value.to_owned(), create: true, propagation: None, selinux: None };
            it.container.mounts.push(mount("/host", source));
        }
        "address" | "mac" => {
            let NetworkMode::Networks(networks) = &mut it.container.network_mode else { return };
            for it in networks.values_mut() {
                *(if key == "mac" { &mut it.mac_address } else { &mut it.ipv4 }) = Some(value.to_owned());
            }
        }
        "volume" => {
            let source = MountSource::Volume { name: value.to_owned(), no_copy: false };
            it.container.mounts.push(mount("/data", source));
        }
        // `file=/etc/app.conf:CONTENT:HUP`
        "file" => {
            let parts: Vec<&str> = value.split(':').collect();
            let [target, content, on_change] = parts[..] else { panic!("not a file: {value}") };
            let on_change = match on_change {
                "none" => OnChange::None,
                "restart" => OnChange::Restart,
                signal => OnChange::Signal(format!("SIG{signal}")),
            };
            let content = ContentId(content.to_owned());
            it.in_place.insert(target.to_owned(), InPlace { content, secret: false, on_change });
            let source = MountSource::InPlace { secret: false, folder: false };
            it.container.mounts.push(mount(target, source));
        }
        "hook" => {
            let command = vec![value.to_owned()];
            it.container.host.post_start.push(Hook { command, ..Hook::default() });
        }
        "gpu" => it.container.host.device_requests.push(DeviceRequest::default()),
        "anonymous" => it.container.mounts.push(mount("/scratch", MountSource::Anonymous)),
        "net" => {
            let attachment =
                Box::new(Attachment { aliases: vec!["web".to_owned()], ..Attachment::default() });
            let NetworkMode::Networks(networks) = &mut it.container.network_mode else { return };
            networks.insert(value.to_owned(), attachment);
        }
        "network-of" | "pid-of" | "volumes-of" => {
            let peer = match value.strip_prefix("container/") {
                Some(name) => Peer::Container(name.to_owned()),
                None => Peer::Workload(value.into()),
            };
            if let Peer::Workload(workload) = peer.clone() {
                let condition = Condition::Started;
                it.after.push(Dependency { workload, condition, required: true, restart: false });
            }
            match key {
                "network-of" => it.container.network_mode = NetworkMode::Of(peer),
                "pid-of" => it.container.pid_mode = Some(Namespace::Of(peer)),
                _ => it.container.volumes_from.push(VolumesFrom { peer, read_only: true }),
            }
        }
        "after" | "follow" | "after-optional" => {
            let (on, condition) = value.split_once(':').unwrap();
            let condition = match condition {
                "started" => Condition::Started,
                "healthy" => Condition::Healthy,
                "completed" => Condition::CompletedSuccessfully,
                other => panic!("no such condition: {other}"),
            };
            let (required, restart) = (key != "after-optional", key == "follow");
            it.after.push(Dependency { workload: on.into(), condition, required, restart });
        }
        _ => panic!("no such option: {option}"),
    }
}

/// Events in programs, registries and engines.
fn on_the_host(stage: &mut Stage, words: &[&str]) -> bool {
    let now = stage.now;
    let exited = |code| State::Exited { code, finished: now, out_of_memory: false, error: String::new() };
    match *words {
        ["registry", ref images @ ..] => {
            stage.world.registry = Some(images.iter().map(|it| (*it).to_owned()).collect());
        }
        ["broken", ref images @ ..] => {
            stage.world.broken = images.iter().map(|it| (*it).to_owned()).collect();
        }
        ["no-image", image] => drop(stage.world.observed.images.remove(image)),
        ["sick", image] => drop(stage.sick.insert(image.to_owned())),
        ["cured", image] => drop(stage.sick.remove(image) | stage.crashing.remove(image)),
        ["crashing", image] => drop(stage.crashing.insert(image.to_owned())),
        ["finishing", image] => drop(stage.finishing.insert(image.to_owned())),
        ["exit", name, code] => stage.named(name).state = exited(code.parse().unwrap()),
        ["stuck", name] => {
            let error = "task 489c586ddd7d: already exists: unknown".to_owned();
            let finished = stage.now;
            let attempt = Attempt { count: 1, next: finished, error: error.clone() };
            stage.record.failures.insert((*name).to_owned(), attempt);
            stage.named(name).state = State::Exited { code: 137, finished, out_of_memory: false, error };
        }
        ["hang", name] => {
            stage.named(name).readiness = Readiness::Dead { reason: "liveness: timeout".into() }
        }
        ["unhealthy", name] => {
            stage.named(name).state = State::Running { since: now, health: Health::Unhealthy };
            stage.named(name).readiness = Readiness::NotReady { reason: "health check".into() };
        }
        ["restarting", name, code] => {
            stage.named(name).state = State::Restarting { code: code.parse().unwrap(), finished: now };
        }
        ["engine-restarts"] => {
            for it in stage.world.observed.instances.values_mut().filter(|it| it.is_running()) {
                it.state = exited(137);
            }
            stage.world.observed.engine_started = Some(now.after(Duration::from_secs(1)));
        }
        ["gets-address", name, network, ip] => {
            stage.named(name).networks.get_mut(network).unwrap().ip = Some(ip.to_owned());
        }
        ["writes", name, file] => change_file(stage, name, file, FileChangeKind::Added),
        ["looked-into", name] => look_into(stage, name),
        ["memory-is-lost"] => stage.record = Default::default(),
        ["has-anonymous-volume", name, volume] => {
            stage.named(name).anonymous_volumes = BTreeMap::from([("/scratch".into(), volume.to_owned())]);
        }
        _ => return false,
    }
    true
}

/// Actions of a user with `docker`.
fn by_hand(stage: &mut Stage, words: &[&str]) -> bool {
    let now = stage.now;
    let exited = |code| State::Exited { code, finished: now, out_of_memory: false, error: String::new() };
    match *words {
        ["stop" | "kill", name] => {
            let it = stage.named(name);
            it.state = exited(if words[0] == "stop" { 0 } else { 137 });
            it.touched_by_hand = Some(now);
        }
        ["restart", name] => {
            let it = stage.named(name);
            it.state = State::Running { since: now, health: Health::Healthy };
            it.started = Some(now);
        }
        ["foreign-network", name] => {
            let found = driftless_model::ObservedNetwork { id: name.to_owned(), ..Default::default() };
            stage.world.observed.networks.insert(name.to_owned(), found);
        }
        ["foreign-volume", name] => {
            stage.world.observed.volumes.insert(name.to_owned(), Default::default());
        }
        ["volume-of", app, name] => {
            let found = driftless_model::ObservedVolume { app: Some(app.into()), ..Default::default() };
            stage.world.observed.volumes.insert(name.to_owned(), found);
        }
        ["network-of", app, name] => {
            let (id, app) = (name.to_owned(), Some(app.into()));
            let found = driftless_model::ObservedNetwork { id, app, ..Default::default() };
            stage.world.observed.networks.insert(name.to_owned(), found);
        }
        ["foreign-runs", name, number] => {
            let (id, started) = (ContainerId(format!("{number:0>64}")), Some(now));
            stage.world.observed.others.insert(name.to_owned(), Other { id: id.clone(), started });
            let holder = driftless_model::NameHolder { id, app: None, project: None };
            stage.world.observed.claims.hold_name(name, holder);
        }
        ["enter", name, ref command @ ..] => {
            let id = stage.named(name).id.clone();
            let what = format!("docker exec {}", command.join(" "));
            let visits = &mut stage.world.observed.inside.entry(id).or_default().visits;
            visits.insert(Visit { from: now, to: None, copies: false, what });
        }
        ["add-file", name, file] => change_file(stage, name, file, FileChangeKind::Added),
        ["change-file", name, file] => change_file(stage, name, file, FileChangeKind::Changed),
        ["delete-file", name, file] => change_file(stage, name, file, FileChangeKind::Deleted),
        ["leave", name] => {
            let id = stage.named(name).id.clone();
            let visits = &mut stage.world.observed.inside.get_mut(&id).unwrap().visits;
            *visits =
                visits.iter().map(|it| Visit { to: Some(it.to.unwrap_or(now)), ..it.clone() }).collect();
        }
        ["pause", name] => {
            let it = stage.named(name);
            it.state = State::Paused;
            it.touched_by_hand = Some(now);
        }
        ["rm", name] => {
            let id = stage.named(name).id.clone();
            stage.world.observed.instances.remove(&id);
        }
        ["rename", name, to] => stage.named(name).name = to.to_owned(),
        ["swap-names", one, other] => {
            stage.named(one).name = "swapping".into();
            stage.named(other).name = one.to_owned();
            stage.named("swapping").name = other.to_owned();
        }
        ["update-memory", name, mib] => {
            stage.named(name).live.resources.memory = Some(mib.parse::<u64>().unwrap() << 20);
        }
        ["update-restart", name] => stage.named(name).live.restart = RestartPolicy::No,
        ["disconnect", name, network] => drop(stage.named(name).networks.remove(network)),
        ["connect", name, network] => {
            let endpoint = driftless_model::Endpoint {
                network_id: format!("{network}-id"),
                ..driftless_model::Endpoint::default()
            };
            let observed = driftless_model::ObservedNetwork {
                id: endpoint.network_id.clone(),
                ..driftless_model::ObservedNetwork::default()
            };
            stage.world.observed.networks.insert(network.to_owned(), observed);
            stage.named(name).networks.insert(network.to_owned(), endpoint);
        }
        ["attach-foreign", network, who] => {
            stage.world.observed.networks.get_mut(network).unwrap().foreign.push(who.to_owned());
        }
        ["detach-foreign", network] => {
            stage.world.observed.networks.get_mut(network).unwrap().foreign.clear()
        }
        ["rm-network", network] => {
            stage.world.observed.networks.remove(network);
            for it in stage.world.observed.instances.values_mut().filter(|it| it.is_running()) {
                it.networks.remove(network);
            }
        }
        ["foreign-name", name] => {
            let id = ContainerId("f".repeat(64));
            let holder = driftless_model::NameHolder { id, app: None, project: None };
            stage.world.observed.claims.hold_name(name, holder);
        }
        ["foreign-port", port, who] => {
            let (ip, port) = port.rsplit_once(':').map_or((None, port), |(ip, port)| (Some(ip), port));
            stage.world.observed.claims.ports.insert(driftless_model::HeldPort {
                port: port.parse().unwrap(),
                protocol: Protocol::Tcp,
                ip: ip.map(|it| it.parse().unwrap()),
                by: who.to_owned(),
            });
        }
        ["foreign-leaves"] => stage.world.observed.claims = Default::default(),
        ["copy", name, to, ref options @ ..] => copy(stage, name, to, options),
        ["replace-with-other", name, ref options @ ..] => {
            copy(stage, name, "other", options);
            let id = stage.named(name).id.clone();
            stage.world.observed.instances.remove(&id);
            stage.named("other").name = name.to_owned();
        }
        _ => return false,
    }
    true
}

fn change_file(stage: &mut Stage, name: &str, file: &str, kind: FileChangeKind) {
    let (id, now) = (stage.named(name).id.clone(), stage.now);
    let inside = stage.world.observed.inside.entry(id).or_default();
    let files = Arc::make_mut(inside.files.get_or_insert_default());
    let written = (kind != FileChangeKind::Deleted).then_some(now);
    files.changed.insert(file.to_owned(), FileChange { kind, written });
    files.at = now;
}

/// Changed files are shown as they are now.
fn look_into(stage: &mut Stage, name: &str) {
    let (id, now) = (stage.named(name).id.clone(), stage.now);
    let inside = stage.world.observed.inside.entry(id).or_default();
    Arc::make_mut(inside.files.get_or_insert_default()).at = now;
}

/// A container run by hand with the labels of another.
fn copy(stage: &mut Stage, name: &str, to: &str, options: &[&str]) {
    let mut it = stage.named(name).clone();
    let number = stage.world.observed.instances.len();
    it.id = ContainerId(format!("{:064x}", 0xc0de_0000 + number));
    it.name = to.to_owned();
    it.created = stage.now;
    for option in options {
        let config = Arc::make_mut(&mut it.config);
        match option.split_once('=').unwrap() {
            ("slot", slot) => it.instance.slot = slot.parse().unwrap(),
            ("image", image) => {
                config.image = image.to_owned();
                it.image_id = format!("sha256:{image}");
            }
            ("env", value) => drop(config.env.insert("VALUE".into(), Some(value.to_owned()))),
            ("agent", agent) => it.agent = AgentId(agent.to_owned()),
            ("workload", workload) => it.instance.workload = WorkloadName::from(workload),
            (other, _) => panic!("no such option: {other}"),
        }
    }
    stage.world.observed.instances.insert(it.id.clone(), it);
}
