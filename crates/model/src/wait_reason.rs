//! Reasons to wait, each with its severity. The planner decides with them, and readers of a status compare with them.
//!
//! A new reason takes one row here, and one constructor of `Wait` in `crates/plan/src/wait.rs`, which holds its sentence.

/// Severity of a wait, the least serious first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitSeverity {
    /// Information: the live state still counts as equal to the target.
    Note,
    /// The sync goes on by itself, or after another event.
    Progress,
    /// A person has to decide.
    Decision,
    /// The application is degraded until somebody changes something.
    Failure,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident: $severity:ident, $pending:expr;)*) => {
        /// Why something waits. The order tells which failure says most when a workload has several.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum WaitReason {
            $($(#[$doc])* $reason,)*
        }

        impl WaitReason {
            /// All reasons. Each has an anchor in `docs/troubleshooting.md`.
            pub const ALL: &[Self] = &[$(Self::$reason,)*];

            /// One word that scripts can rely on, such as `ImagePullBackOff`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$reason => stringify!($reason),)*
                }
            }

            pub fn severity(self) -> WaitSeverity {
                match self {
                    $(Self::$reason => WaitSeverity::$severity,)*
                }
            }

            /// The word that Kubernetes shows for an instance without a container. `None` if the wait does not
            /// explain why there is none.
            pub fn pending(self) -> Option<&'static str> {
                match self {
                    $(Self::$reason => $pending,)*
                }
            }
        }
    };
}

reasons! {
    /// The last pull of the image failed.
    ImagePullBackOff: Failure, Some("ImagePullBackOff");
    /// The signature of the image was not verified.
    ImageNotVerified: Failure, Some("ImageNotVerified");
    /// The last build of the image failed.
    BuildFailed: Failure, Some("BuildFailed");
    /// The container keeps exiting.
    CrashLoopBackOff: Failure, None;
    /// The container failed, and its restart policy forbids another start.
    Failed: Failure, None;
    /// Something that the agent does not own is in the way.
    Blocked: Failure, Some("Pending");
    /// The Job failed and is not tried again.
    JobFailed: Failure, None;
    /// Self-heal has no effect on a field.
    HealIneffective: Failure, None;
    /// An external network, volume or container does not exist.
    ExternalMissing: Failure, None;
    /// The host does not have the value of a secret any more that the revision mounts.
    SecretMissing: Failure, Some("CreateContainerConfigError");
    /// A network or volume was created for another application.
    OfAnotherApplication: Failure, None;
    /// The engine does not know a field of the manifest.
    EngineTooOld: Failure, None;
    /// The workload needs an engine of another architecture or platform.
    OtherArchitecture: Failure, Some("Pending");
    /// A limit of CPUs is above the CPUs of the engine.
    TooFewCpus: Failure, Some("Pending");
    /// More new instances have failed than the manifest tolerates.
    UpdateFailed: Failure, None;
    /// The rollout has made no progress for too long.
    ProgressDeadlineExceeded: Failure, None;
    /// The commit failed, and its rollouts are paused.
    CommitFailed: Failure, None;
    /// Docker Compose or somebody else started the containers, and nobody has adopted them yet.
    NotAdopted: Decision, None;
    /// The commit removes a large part of the application.
    PruneHeld: Decision, None;
    /// The change is about the agent's own container.
    Own: Decision, None;
    /// A container to which Git does not give the data of the workload, and that stays for now, writes to them.
    DataInUse: Decision, Some("Pending");
    /// The agent's own container is being replaced.
    OwnUpdate: Progress, None;
    /// The container that was to take the place of the agent's own one failed.
    OwnUpdateFailed: Failure, None;
    /// A dependency is not ready.
    Dependency: Progress, Some("Pending");
    /// A hook has not ended, or a sync waits for its hooks.
    Hook: Progress, Some("Pending");
    /// A workload of a lower sync wave is not available yet.
    SyncWave: Progress, Some("Pending");
    /// The canary of an update pauses.
    Canary: Progress, None;
    /// Images of other workloads are missing.
    Images: Progress, Some("Pending");
    /// Started, and not ready yet.
    Readiness: Progress, None;
    /// Ready, and not for long enough.
    MinReady: Progress, None;
    /// Self-heal has corrected the same field too often.
    HealBackOff: Progress, None;
    /// Another agent acts, because its node leads the Swarm.
    Standby: Progress, None;
    /// The application is suspended.
    Suspended: Progress, None;
    /// Drift is reported and left, because self-heal is off.
    SelfHealOff: Progress, None;
    /// The workload is paused, and has instances that its definition would replace.
    Paused: Progress, None;
    /// A new pod of a StatefulSet would be of a newer version than its partition allows.
    BelowPartition: Progress, Some("Pending");
    /// The kernel of the host cannot apply a limit of the manifest.
    LimitUnsupported: Note, None;
    /// The network of a proxy publishes no ports.
    PortsUnpublished: Note, None;
    /// The specification of a volume changed. Volumes are never replaced.
    VolumeChanged: Note, None;
    /// A hook that runs after a failure has failed itself.
    HookFailed: Note, None;
    /// New instances have failed, and the manifest tolerates as many.
    FailuresTolerated: Note, None;
    /// A live container differs from Git in a field that `ignoreDifferences` names.
    DifferenceIgnored: Note, None;
    /// A user set the number of instances for a time.
    Scaled: Note, None;
    /// The engine went down in a run whose work is done once, so it was run again.
    MayHaveRunTwice: Note, None;
    /// A CronJob has left out a time, because its last run has not ended.
    RunSkipped: Note, None;
    /// A run of a CronJob from before the record was lost has not ended.
    ForgottenRun: Note, None;
    /// Containers on a host do the work of the services in the Swarm once more.
    RunsTwice: Note, None;
    /// A container of another agent runs the workload as well.
    OfAnotherAgent: Note, None;
    /// The manifest says that the instance stays at its older version.
    Held: Note, None;
    /// Docker Compose created a network or volume that differs from Git.
    NotAsInGit: Note, None;
    /// An external volume was created for another application, which shares it.
    SharedVolume: Note, None;
    /// A volume of an application that is removed stays, because others use it.
    VolumeInUse: Note, None;
    /// The manifest protects an object that Git does not contain any more.
    PruneProtected: Note, None;
    /// A container writes files that no volume keeps.
    WritesInside: Note, None;
}
