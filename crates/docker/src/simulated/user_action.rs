//! Actions of users on a simulated host, without the agent.

use std::sync::Arc;

use driftless_model::{
    FileChange, FileChangeKind, Inside, Instance, LiveSettings, Observed, State, Timestamp, Visit,
};
use driftless_plan::{Action, ContainerRef, Refusal, World};

/// A change that a user makes without the agent, to a container by its name or to a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserAction {
    Start {
        name: String,
    },
    Stop {
        name: String,
    },
    Kill {
        name: String,
    },
    Pause {
        name: String,
    },
    /// `docker rm -f`.
    Remove {
        name: String,
    },
    Rename {
        name: String,
        to: String,
    },
    Disconnect {
        name: String,
        network: String,
    },
    Update {
        name: String,
        settings: LiveSettings,
    },
    /// `docker exec` of a command that writes files and ends at once.
    Exec {
        name: String,
        command: String,
        files: Vec<String>,
    },
    /// A process of the container writes a file. The engine reports no event for it.
    Write {
        name: String,
        file: String,
    },
    /// All containers are disconnected from it first.
    RemoveNetwork {
        name: String,
    },
}

pub(super) fn apply(world: &mut World, action: &UserAction, now: Timestamp) -> Result<(), Refusal> {
    let named = |name: &String| ContainerRef::Name(name.clone());
    match action {
        UserAction::Start { name } => {
            let agent = find(world, name)?.agent.clone();
            world.apply(&agent, &Action::StartInstance { container: named(name) }, now)?;
        }
        UserAction::Stop { name } | UserAction::Kill { name } => {
            let agent = find(world, name)?.agent.clone();
            world.apply(&agent, &Action::StopInstance { container: named(name), grace: None }, now)?;
            let code = if matches!(action, UserAction::Kill { .. }) { 137 } else { 0 };
            let instance = find(world, name)?;
            instance.state =
                State::Exited { code, finished: now, out_of_memory: false, error: String::new() };
            instance.touched_by_hand = Some(now);
        }
        UserAction::Pause { name } => {
            let instance = find(world, name)?;
            if !instance.is_running() {
                let state = format!("{:?}", instance.state);
                return Err(Refusal::WrongState { container: name.clone(), state });
            }
            instance.state = State::Paused;
            instance.touched_by_hand = Some(now);
        }
        UserAction::Remove { name } => {
            let id = find(world, name)?.id.clone();
            world.observed.instances.remove(&id);
            world.observed.parts.remove(&id);
        }
        UserAction::Rename { name, to } => {
            let agent = find(world, name)?.agent.clone();
            let rename = Action::RenameInstance { container: named(name), to: to.clone() };
            world.apply(&agent, &rename, now)?;
        }
        UserAction::Disconnect { name, network } => {
            let agent = find(world, name)?.agent.clone();
            let disconnect = Action::Disconnect { container: named(name), network: network.clone() };
            world.apply(&agent, &disconnect, now)?;
        }
        UserAction::Exec { name, command, files } => {
            let id = find(world, name)?.id.clone();
            let inside = world.observed.inside.entry(id).or_default();
            let what = format!("docker exec {command}");
            inside.visits.insert(Visit { from: now, to: Some(now), copies: false, what });
            for file in files {
                write(inside, file, now);
            }
        }
        UserAction::Write { name, file } => {
            let id = find(world, name)?.id.clone();
            write(world.observed.inside.entry(id).or_default(), file, now);
        }
        UserAction::Update { name, settings } => find(world, name)?.live = settings.clone(),
        UserAction::RemoveNetwork { name } => {
            let removed = world.observed.networks.remove(name);
            removed.ok_or_else(|| Refusal::NoSuchNetwork(name.clone()))?;
            world.observed.held_subnets.remove(name);
            for instance in world.observed.instances.values_mut() {
                instance.networks.remove(name);
            }
        }
    }
    Ok(())
}

fn write(inside: &mut Inside, file: &str, now: Timestamp) {
    let files = Arc::make_mut(inside.files.get_or_insert_default());
    let change = FileChange { kind: FileChangeKind::Added, written: Some(now) };
    files.changed.insert(file.to_owned(), change);
}

pub(super) fn find<'a>(world: &'a mut World, name: &str) -> Result<&'a mut Instance, Refusal> {
    let Observed { instances, parts, .. } = &mut world.observed;
    let found = instances.values_mut().chain(parts.values_mut()).find(|instance| instance.name == name);
    found.ok_or_else(|| Refusal::NoSuchContainer(name.to_owned()))
}
