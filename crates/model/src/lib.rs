//! The nouns, and nothing else: no IO, no foreign formats, no decisions.
//!
//! | noun | what it is |
//! |---|---|
//! | [`Stack`] | one application's desired state, free of its front-end format |
//! | [`Workload`] | a named set of equal replicas inside a stack |
//! | [`Container`] | everything that would require replacing an instance, if changed |
//! | [`Instance`] | one real container of ours, in a numbered slot of a workload |
//! | [`Observed`] | what Docker holds for one application, at one moment |
//! | [`Record`] | what cannot be observed and must be remembered between rounds |
//! | [`Revision`] | one commit as it was applied; something to go back to |
//! | [`Finding`] | something to say about a manifest, with its place |
//! | [`Event`] | something that happened, in one sentence |
//! | [`Application`] | `spec` and `status` as users see them |
//!
//! # Example
//!
//! The spec hash of a container decides whether a running one is outdated. Fields with their default are not part of it:
//!
//! ```
//! use driftless_model::{Container, RestartPolicy};
//!
//! let web = Container { image: "nginx:1.27".to_owned(), ..Container::default() };
//! let same = Container { restart: RestartPolicy::No, ..web.clone() };
//! let newer = Container { image: "nginx:1.28".to_owned(), ..web.clone() };
//! assert_eq!(web.spec(), same.spec());
//! assert_ne!(web.spec(), newer.spec());
//! ```

mod actor;
mod admission;
mod after;
mod agent_status;
mod api_version;
mod app_dependency;
mod boxed_default;
mod build;
mod canary;
mod check;
mod cluster_domain;
mod commit_id;
mod completed_jobs;
mod container;
mod content;
mod cron;
mod defaults;
mod disk_space;
pub mod downward;
mod duration;
mod effective;
mod effective_setting;
mod encrypted_texts;
mod engine_traits;
mod error_chain;
mod event;
mod expiry;
mod failed_commit;
mod failure_rule;
mod finding;
mod forward;
mod fs_changes;
mod hash;
mod helper;
mod hook;
mod hook_record;
mod host_config;
mod host_data;
mod host_identity;
mod host_request;
mod ignored_field;
mod image_list;
mod image_ref;
mod image_signature;
mod image_syntax;
mod image_update;
mod incident;
mod ip_network;
mod job;
pub mod label;
mod lifecycle;
mod mask;
mod mount;
mod name;
mod namespace;
mod nested_mount;
mod network;
mod network_size;
mod object;
mod observed;
mod platform;
mod platform_image;
mod pod;
mod policy;
mod printable;
mod quiet_hours;
mod record;
mod repo_url;
mod revision;
mod rollout_sizes;
mod scale_override;
mod schedule;
mod seconds;
mod selector;
mod stack;
mod stack_hashes;
mod stateful_set;
mod status;
mod status_condition;
mod swarm;
mod swarm_data;
mod swarm_file_kind;
mod swarm_name;
mod swarm_port;
mod sync_window;
mod time;
mod unknown_end;
mod unreported;
mod version_range;
mod wait_reason;
mod webhook;
mod wildcard;
mod workload;

pub use actor::{ActOn, Actor, ActorKind, ApiToken, AuditEntry, AuditResult, Channel, InvalidScope, Scope};
pub use admission::{
    AdmissionPolicy, ForeignObject, PortRule, Trust, ViolatingObject, Violation, foreign_objects,
};
pub use after::{After, AfterRecord, Otherwise};
pub use agent_status::{AgentProblem, AgentStatus};
pub use api_version::{INTERFACE_NAME, Need};
pub use app_dependency::{AppCondition, AppDependency};
pub use boxed_default::{BoxedDefault, SharedDefault};
pub use build::{Build, Dockerfile};
pub use canary::{CanaryRecord, CanaryStatus, CanaryStep, InvalidCanary};
pub use check::{Held, check, conflicts};
pub use commit_id::{CommitId, InvalidCommitId};
pub use completed_jobs::CompletedJobs;
pub use container::{
    Attachment, Container, DEFAULT_STOP_GRACE, Healthcheck, NetworkMode, Port, PortRange, Protocol,
    Resources, RestartPolicy, addresses_overlap,
};
pub use content::{Access, Content, ContentId, ContentTree, Contents};
pub use cron::{Concurrency, Cron};
pub use disk_space::{DiskSpace, FreeSpace, NoSize, parse_bytes};
pub use downward::{Downward, DownwardValues};
pub use duration::parse_duration;
pub use effective_setting::EffectiveSetting;
pub use encrypted_texts::EncryptedTexts;
pub use engine_traits::{EngineTraits, LimitKind};
pub use error_chain::{causes, chain_of_causes, error_chain, join_causes, root_cause};
pub use event::{Event, EventKind};
pub use expiry::Expiry;
pub use failed_commit::FailedCommit;
pub use failure_rule::{FailureAction, FailureRule};
pub use finding::{Finding, Location, Severity};
pub use forward::{
    Forward, ForwardLimits, Forwards, HOST_ENDPOINT, InvalidEndpoints, InvalidForward, PortCounters,
    ReadyAddresses, ReadyEndpoints, TargetCounters,
};
pub use fs_changes::{Author, ChangedFiles, FileChange, FileChangeKind, Inside, KnownInside, Visit};
pub use hash::{SpecHash, StackHash, digest_hex};
pub use helper::{
    HANDOVER_TIME, HELPER_IMAGE, PROXY_IMAGE, is_helper_image, is_helper_name, is_made_helper,
    is_proxy_image, proxy_containers, proxy_of, worker_of,
};
pub use hook::{HookOrigin, HookPhase};
pub use hook_record::{HookRecord, HookRun};
pub use host_config::{BlockIo, DeviceRequest, Hook, HostSettings, HttpHook, MountOptions};
pub use host_data::{
    HostMount, HostSource, ManagedApplications, MountingContainer, SharedPlace, SharingServices,
};
pub use host_identity::{HostIdentity, HostSelector};
pub use host_request::{HostRequest, HostRequestKind, HostRequestOutcome, HostRequestResult};
pub use ignored_field::{IgnoredDifferences, IgnoredField, InvalidField};
pub use image_list::{
    BroughtImage, CleanupRules, ImageCleanup, ImageRetention, ImageUse, KeepReason, ListedImage,
    RevisionImages,
};
pub use image_ref::{ImageParts, ImageRef};
pub use image_signature::{SignatureRule, VerifiedImage, VerifiedImages, signature_keys};
pub use image_syntax::InvalidImage;
pub use image_update::{
    AvailableImage, CheckFailure, FollowedImage, ImageDigests, ImageUpdate, ImageUpdateStatus, TagRule,
    UpdateFields, UpdateMode,
};
pub use incident::{
    Incident, IncidentKind, IncidentPhase, Notification, NotificationStatus, ReceiverStatus, Urgency,
};
pub use ip_network::IpNetwork;
pub use job::{Job, JobEnd, JobOutcome, JobRecord};
pub use lifecycle::{Completion, Probe, ProbeAction, Probes, PullPolicy};
pub use mask::Mask;
pub use mount::{
    InPlace, Mount, MountSource, NAMESPACE_FILE, OnChange, in_place_of, in_place_path, is_system_path,
};
pub use name::{AgentId, AppName, ContainerId, InstanceId, InvalidName, WorkloadName};
pub use namespace::{Namespace, Peer, VolumesFrom};
pub use nested_mount::NestedMount;
pub use network::{Network, Volume};
pub use network_size::{addresses_at_least, addresses_at_most, addresses_of_subnet};
pub use object::{Facts, Inventory, Kind, ObjectRef, Resource, ServicePort};
pub use observed::{
    Candidate, Claims, ComposeService, Endpoint, EngineData, Health, HeldNames, HeldPort, Image, Instance,
    LeftInSwarm, LiveSettings, NameHolder, Observed, ObservedNetwork, ObservedVolume, Other, OwnUpdate,
    Readiness, State,
};
pub use platform::Platform;
pub use platform_image::PlatformImage;
pub use pod::{Part, PartOf, Role};
pub use policy::{Adopt, FilesystemDrift, ObjectsOfOthers, OnFailure, Policy};
pub use printable::{is_unprintable, printable, without_escapes};
pub use quiet_hours::QuietHours;
pub use record::{
    Adopted, AdoptedContainer, AdoptedNetwork, Attempt, Crash, CronRecord, FailedOwnUpdate, FailedRun, Heal,
    KnownHealth, KnownReady, NewestStack, Preparation, Progress, Record, Removal, ReopenedStack, Replacement,
    RolloutCounts, Unadopted,
};
pub use repo_url::{InvalidUrl, RepoUrl};
pub use revision::{
    Cause, CommitInfo, Outcome, Pin, REVISION_ELSEWHERE, Revision, Until, is_same_version, is_version_of,
    last_reached, older_success,
};
pub use rollout_sizes::RolloutSizes;
pub use scale_override::ScaleOverride;
pub use schedule::Schedule;
pub use selector::{InvalidSelector, Selector};
pub use stack::{Format, GivenStack, PortPlace, Stack};
pub use stack_hashes::StackHashes;
pub use stateful_set::{Member, Update};
pub use status::{
    Answered, Application, ApplicationSpec, ApplicationStatus, AwaitedInstance, CronStatus, Drift,
    DriftAction, ExitStatus, FormerTemplate, HealthStatus, InstanceStatus, JobStatus, Operation,
    OperationPhase, PartSpec, PartStatus, PinStatus, RepositoryStatus, ResourceStatus, SyncStatus,
    TrafficStatus, WaitStatus, WorkloadSpec, WorkloadStatus,
};
pub use status_condition::{ConditionStatus, ConditionType, Statement, StatusCondition};
pub use swarm::{
    AppliedRevision, EngineKind, FITS_NO_NODE, LARGEST_SWARM_FILE, ObservedService, ObservedSwarm,
    ResolvedImage, SHARED_LABEL, STACK_NAMESPACE, SWARM_OWNER, SharedObject, SharedState, SwarmFile,
    SwarmMode, SwarmNode, SwarmObject, SwarmRecord, SwarmRestart, SwarmService, SwarmTask, SwarmUpdate,
    WrittenService, swarm_service_name, written_data,
};
pub use swarm_data::wanted_data;
pub use swarm_file_kind::SwarmFileKind;
pub use swarm_name::{LONGEST_SWARM_NAME, refused_swarm_name};
pub use swarm_port::SwarmPort;
pub use sync_window::{SyncWindow, WindowKind};
pub use time::Timestamp;
pub use unknown_end::UnknownEnd;
pub use unreported::UnreportedSettings;
pub use version_range::VersionRange;
pub use wait_reason::{WaitReason, WaitSeverity};
pub use webhook::{
    Delivery, DeliveryOutcome, DeliveryResult, Missed, WebhookProvider, WebhookSecret, WebhookStatus,
};
pub use wildcard::{matches_star, matches_star_and_question};
pub use workload::{
    Condition, DEFAULT_PROGRESS_DEADLINE, DEFAULT_REVISION_HISTORY, Dependency, MOST_REPLICAS, ManifestNames,
    RollbackSettings, Strategy, Subject, Workload, WorkloadKind,
};
