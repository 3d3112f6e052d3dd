//! What people do to a host past the agent.

use std::sync::Arc;

use driftless_model::{
    FileChange, FileChangeKind, Inside, Instance, LiveSettings, Observed, State, Timestamp, Visit,
};
use driftless_plan::{Action, ContainerRef, Refusal, World};

/// What somebody does past us, to a container by its name or to a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hand {
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
    /// `docker exec`, which writes files. It is over at once.
    Exec {
        name: String,
        command: String,
        files: Vec<String>,
    },
    /// The container itself writes a file.
    Write {
        name: String,
        file: String,
    },
    /// With everything that is attached to it disconnected first.
    RemoveNetwork {
        name: String,
    },
}

pub(super) fn apply(world: &mut World, hand: &Hand, now: Timestamp) -> Result<(), Refusal> {
    let named = |name: &String| ContainerRef::Name(name.clone());
    match hand {
        Hand::Start { name } => {
            let agent = find(world, name)?.agent.clone();
            world.apply(&agent, &Action::StartInstance { container: named(name) }, now)?;
        }
        Hand::Stop { name } | Hand::Kill { name } => {
            let agent = find(world, name)?.agent.clone();
            world.apply(&agent, &Action::StopInstance { container: named(name), grace: None }, now)?;
            let code = if matches!(hand, Hand::Kill { .. }) { 137 } else { 0 };
            let it = find(world, name)?;
            it.state = State::Exited { code, finished: now, out_of_memory: false, error: String::new() };
            it.touched_by_hand = Some(now);
        }
        Hand::Pause { name } => {
            let it = find(world, name)?;
            if !it.is_running() {
                let state = format!("{:?}", it.state);
                return Err(Refusal::WrongState { container: name.clone(), state });
            }
            it.state = State::Paused;
            it.touched_by_hand = Some(now);
        }
        Hand::Remove { name } => {
            let id = find(world, name)?.id.clone();
            world.observed.instances.remove(&id);
            world.observed.parts.remove(&id);
        }
        Hand::Rename { name, to } => {
            let agent = find(world, name)?.agent.clone();
            let rename = Action::RenameInstance { container: named(name), to: to.clone() };
            world.apply(&agent, &rename, now)?;
        }
        Hand::Disconnect { name, network } => {
            let agent = find(world, name)?.agent.clone();
            let disconnect = Action::Disconnect { container: named(name), network: network.clone() };
            world.apply(&agent, &disconnect, now)?;
        }
        Hand::Exec { name, command, files } => {
            let id = find(world, name)?.id.clone();
            let inside = world.observed.inside.entry(id).or_default();
            let what = format!("docker exec {command}");
            inside.visits.insert(Visit { from: now, to: Some(now), copies: false, what });
            for file in files {
                write(inside, file, now);
            }
        }
        Hand::Write { name, file } => {
            let id = find(world, name)?.id.clone();
            write(world.observed.inside.entry(id).or_default(), file, now);
        }
        Hand::Update { name, settings } => find(world, name)?.live = settings.clone(),
        Hand::RemoveNetwork { name } => {
            let removed = world.observed.networks.remove(name);
            removed.ok_or_else(|| Refusal::NoSuchNetwork(name.clone()))?;
            for it in world.observed.instances.values_mut() {
                it.networks.remove(name);
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
    let found = instances.values_mut().chain(parts.values_mut()).find(|it| it.name == name);
    found.ok_or_else(|| Refusal::NoSuchContainer(name.to_owned()))
}
