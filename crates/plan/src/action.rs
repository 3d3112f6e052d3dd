//! The actions of a plan: one call to the engine each, or one write of mounted files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    time::Duration,
};

use driftless_model::{
    AgentId, AppName, Attachment, Build, Container, ContainerId, ContentId, Format, Healthcheck, InPlace,
    Instance, InstanceId, LiveSettings, Network, PartOf, Peer, Platform, PlatformImage, Resources, SpecHash,
    Volume,
};
use serde::{Deserialize, Serialize};

use crate::swarm::SwarmAction;
use crate::text::{bytes, cpus, duration, restart};

/// One call to the Docker API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    PullImage {
        image: String,
        /// Another than the engine's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        platform: Option<String>,
        /// Logins of the application, by content.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        secrets: Vec<ContentId>,
        /// The key files that must have signed it. It is verified before the pull counts as done.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        keys: BTreeSet<PathBuf>,
    },
    /// Verifies the signatures of an image that is here.
    VerifyImage {
        image: String,
        /// The platform that it was pulled for: a failure delays the next pull for that platform.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        platform: Option<String>,
        /// Logins of the application, by content.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        secrets: Vec<ContentId>,
        /// The key files that must have signed it.
        keys: BTreeSet<PathBuf>,
    },
    /// From the files of the commit, which the executor has.
    BuildImage {
        image: String,
        build: Box<Build>,
    },
    /// From this agent's own executable: see [`driftless_model::HELPER_IMAGE`].
    ImportImage {
        image: String,
    },
    CreateNetwork {
        name: String,
        network: Network,
        /// The application's project, by which Docker Compose knows it.
        #[serde(default)]
        project: String,
        /// The number of addresses that services and tasks of a Swarm may need, if nobody chose a range for them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        addresses: Option<u64>,
    },
    RemoveNetwork {
        name: String,
        id: String,
    },
    CreateVolume {
        name: String,
        volume: Volume,
        /// The application's project, by which Docker Compose knows it.
        #[serde(default)]
        project: String,
    },
    /// Only for a user who asked to remove the application with its volumes.
    RemoveVolume {
        name: String,
    },
    CreateInstance(Box<Creation>),
    /// Brings the files that are rewritten in place for one container to what they are to hold, by target. The
    /// engine has no part in it.
    WriteFiles {
        container: ContainerRef,
        instance: InstanceId,
        files: BTreeMap<String, InPlace>,
    },
    StartInstance {
        container: ContainerRef,
    },
    /// Its `post_start` commands, after a start.
    RunHooks {
        container: ContainerRef,
        instance: InstanceId,
    },
    /// To the container's first process.
    SignalInstance {
        container: ContainerRef,
        signal: String,
    },
    /// With the container's own signal; SIGKILL after `grace`, or after what it was created with.
    StopInstance {
        container: ContainerRef,
        grace: Option<Duration>,
    },
    /// The container does not run.
    RemoveInstance {
        container: ContainerRef,
        /// The anonymous volumes that the engine made for it are removed, too: nothing takes them over. All others are kept.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        with_volumes: bool,
    },
    UnpauseInstance {
        container: ContainerRef,
    },
    RenameInstance {
        container: ContainerRef,
        to: String,
    },
    UpdateInstance {
        container: ContainerRef,
        settings: LiveSettings,
    },
    Connect {
        container: ContainerRef,
        network: String,
        attachment: Attachment,
    },
    Disconnect {
        container: ContainerRef,
        network: String,
    },
    /// Has a helper container of the new image put another container in the place of the one that the agent runs in.
    ReplaceAgent(Box<AgentReplacement>),
    /// A call to a manager of a Swarm.
    Swarm(Box<SwarmAction>),
}

/// Another container in the place of the one that the agent runs in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentReplacement {
    pub old: ContainerRef,
    pub creation: Creation,
    /// The time in which the new agent must be ready.
    pub deadline: Duration,
}

/// A container, by its id where one is known, or by the name it was just created with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ContainerRef {
    /// The id, and the name for people.
    Id(ContainerId, String),
    Name(String),
}

/// All that is needed to create one instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Creation {
    pub app: AppName,
    pub agent: AgentId,
    pub format: Format,
    pub project: String,
    pub instance: InstanceId,
    pub name: String,
    pub container: Container,
    /// The image to create from, where it differs from the manifest's reference: the digest that a rollback
    /// goes back to.
    pub image: Option<String>,
    /// The id of the image that the agent built or imported under the name in the specification. Another program may have
    /// given the name to another image since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_image: Option<String>,
    /// Whether the image must be signed.
    #[serde(default, skip_serializing_if = "RequiredSignature::is_none")]
    pub signature: RequiredSignature,
    pub spec: SpecHash,
    /// Volumes without a name to take over from the predecessor, by target.
    pub inherit: BTreeMap<String, String>,
    /// The very containers that it shares something with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<Peer, ContainerId>,
    /// The pod that it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartOf>,
    /// For Compose's labels: paths of the manifests, and `service:condition:restart` per dependency.
    pub manifests: Vec<String>,
    pub depends_on: Vec<String>,
}

impl Creation {
    /// The health check that the engine is asked for. The kubelet ignores that of an image, so in a pod it is switched off. That is
    /// no part of the specification, and replaces no container that has it.
    pub fn healthcheck(&self) -> Option<Healthcheck> {
        let own = self.container.healthcheck.clone();
        own.or_else(|| (self.format == Format::Kubernetes).then(Healthcheck::disabled))
    }
}

/// Whether an image must be signed before a container is created from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RequiredSignature {
    /// No rule covers it.
    #[default]
    None,
    /// It must be, and the same plan verifies it first. No container is created from it as long as this says so.
    Unverified,
    /// It is. If the name means another image than this id by now, no container is created from it.
    Verified {
        /// The id of the image.
        id: String,
    },
}

impl RequiredSignature {
    /// Whether no rule covers the image.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl From<&Instance> for ContainerRef {
    fn from(instance: &Instance) -> Self {
        Self::Id(instance.id.clone(), instance.name.clone())
    }
}

impl ContainerRef {
    /// The container's name, for people and for keys.
    pub fn name(&self) -> &str {
        match self {
            Self::Id(_, name) | Self::Name(name) => name,
        }
    }

    /// The id or name that Docker's API takes.
    pub fn reference(&self) -> &str {
        match self {
            Self::Id(id, _) => id.as_str(),
            Self::Name(name) => name,
        }
    }
}

impl Action {
    /// The image that it pulls, verifies, builds or imports.
    pub fn image(&self) -> Option<PlatformImage> {
        match self {
            Self::PullImage { image, platform, .. } | Self::VerifyImage { image, platform, .. } => {
                let platform = platform.as_deref().map(Platform::parse);
                Some(PlatformImage { name: image.clone(), platform })
            }
            Self::BuildImage { image, .. } | Self::ImportImage { image } => Some(image.clone().into()),
            _ => None,
        }
    }

    /// Whether it needs a registry, a build or a signature to succeed.
    pub(crate) fn asks_for_image(&self) -> bool {
        match self {
            Self::Swarm(action) => matches!(action.as_ref(), SwarmAction::ResolveImage { .. }),
            action => action.image().is_some(),
        }
    }

    /// The name of the object it acts on.
    pub fn object(&self) -> &str {
        match self {
            Self::PullImage { image, .. }
            | Self::VerifyImage { image, .. }
            | Self::BuildImage { image, .. }
            | Self::ImportImage { image } => image,
            Self::CreateNetwork { name, .. }
            | Self::RemoveNetwork { name, .. }
            | Self::CreateVolume { name, .. }
            | Self::RemoveVolume { name } => name,
            Self::CreateInstance(creation) => &creation.name,
            Self::ReplaceAgent(replacement) => &replacement.creation.name,
            Self::Swarm(action) => action.object(),
            Self::WriteFiles { container, .. }
            | Self::RunHooks { container, .. }
            | Self::SignalInstance { container, .. }
            | Self::StartInstance { container }
            | Self::StopInstance { container, .. }
            | Self::RemoveInstance { container, .. }
            | Self::UnpauseInstance { container }
            | Self::RenameInstance { container, .. }
            | Self::UpdateInstance { container, .. }
            | Self::Connect { container, .. }
            | Self::Disconnect { container, .. } => container.name(),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Swarm(action) => action.fmt(f),
            Self::PullImage { image, platform: None, .. } => write!(f, "pull {image}"),
            Self::PullImage { image, platform: Some(platform), .. } => {
                write!(f, "pull {image} for {platform}")
            }
            Self::VerifyImage { image, .. } => write!(f, "verify the signature of {image}"),
            Self::BuildImage { image, build } => write!(f, "build {image} from {}", build.place()),
            Self::ImportImage { image } => write!(f, "import {image} from this agent's executable"),
            Self::CreateNetwork { name, .. } => write!(f, "create network {name}"),
            Self::RemoveNetwork { name, id: _ } => write!(f, "remove network {name}"),
            Self::CreateVolume { name, .. } => write!(f, "create volume {name}"),
            Self::RemoveVolume { name } => write!(f, "remove volume {name}"),
            Self::CreateInstance(creation) => creation.fmt(f),
            Self::WriteFiles { container, instance: _, files } => {
                let targets: Vec<&str> = files.keys().map(String::as_str).collect();
                write!(f, "write {} of {container}", targets.join(", "))
            }
            Self::StartInstance { container } => write!(f, "start {container}"),
            Self::RunHooks { container, instance: _ } => {
                write!(f, "run the post_start commands of {container}")
            }
            Self::SignalInstance { container, signal } => write!(f, "send {signal} to {container}"),
            Self::StopInstance { container, grace: None } => write!(f, "stop {container}"),
            Self::StopInstance { container, grace: Some(grace) } => {
                write!(f, "stop {container} within {}", duration(*grace))
            }
            Self::RemoveInstance { container, .. } => write!(f, "remove {container}"),
            Self::UnpauseInstance { container } => write!(f, "unpause {container}"),
            Self::RenameInstance { container, to } => write!(f, "rename {container} to {to}"),
            Self::UpdateInstance { container, settings } => {
                write!(f, "update {container} to {}", live_settings(settings))
            }
            Self::Connect { container, network, attachment: _ } => {
                write!(f, "connect {container} to {network}")
            }
            Self::Disconnect { container, network } => write!(f, "disconnect {container} from {network}"),
            Self::ReplaceAgent(replacement) => {
                let AgentReplacement { old, creation, deadline } = replacement.as_ref();
                let image = creation.image.as_ref().unwrap_or(&creation.container.image);
                write!(f, "replace the agent in {old} by {image}, ready within {}", duration(*deadline))
            }
        }
    }
}

impl fmt::Display for Creation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let image = self.image.as_ref().unwrap_or(&self.container.image);
        write!(f, "create {} from {image} at {}", self.name, self.spec)
    }
}

impl fmt::Display for ContainerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(_, name) | Self::Name(name) => f.write_str(name),
        }
    }
}

fn live_settings(LiveSettings { resources, restart: policy }: &LiveSettings) -> String {
    let Resources { nano_cpus, memory, memory_reservation, memory_swap, cpu_shares, pids, cpuset, .. } =
        &resources.normal();
    let limit = |name: &str, value: Option<String>| value.map(|it| format!("{name} {it}"));
    let all = [
        limit("cpus", nano_cpus.map(cpus)),
        limit("memory", memory.map(bytes)),
        limit("memory reservation", memory_reservation.map(bytes)),
        limit(
            "memory and swap",
            memory_swap.map(|it| u64::try_from(it).map_or("unlimited".to_owned(), bytes)),
        ),
        limit("cpu shares", cpu_shares.map(|it| it.to_string())),
        limit("pids", pids.map(|it| it.to_string())),
        limit("cpuset", cpuset.clone()),
        limit("restart", Some(restart(*policy))),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
