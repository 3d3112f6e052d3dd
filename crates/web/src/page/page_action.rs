//! The actions that the page offers, each with its words.

/// Makes the enumeration and its texts from one list, so that no text of an action is forgotten.
macro_rules! actions {
    ($($name:ident {
        word: $word:literal,
        label: $label:literal,
        key: $key:literal,
        consequence: $consequence:literal,
        done: $done:literal,
    })+) => {
        /// An action on an application.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum PageAction {
            $($name,)+
        }

        impl PageAction {
            /// All actions, in the order of the page.
            pub(super) const ALL: &[Self] = &[$(Self::$name),+];

            /// The word in the URL.
            pub(super) fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }

            /// The words on the button.
            pub(super) fn label(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)+
                }
            }

            /// The key that opens it. Empty: none.
            pub(super) fn key(self) -> &'static str {
                match self {
                    $(Self::$name => $key,)+
                }
            }

            /// The consequences, in words.
            pub(super) fn consequence(self) -> &'static str {
                match self {
                    $(Self::$name => $consequence,)+
                }
            }

            /// The sentence after it was accepted. It stays while the page changes, so it says nothing about the present state.
            pub(super) fn done(self) -> &'static str {
                match self {
                    $(Self::$name => $done,)+
                }
            }
        }
    };
}

actions! {
    Sync {
        word: "sync",
        label: "Sync",
        key: "s",
        consequence: "The agent fetches from Git now, looks at Docker now, and ends all pauses after failures. \
            Below is what it would do with the newest commit that it has read.",
        done: "The sync was accepted; the rounds that follow are shown here.",
    }
    Rollback {
        word: "rollback",
        label: "Roll back",
        key: "b",
        consequence: "The agent makes the application equal to an older revision and pins it there: new commits \
            are not applied until the pin ends. Volumes and their data are not changed.",
        done: "The rollback was accepted.",
    }
    Resume {
        word: "resume",
        label: "Resume",
        key: "r",
        consequence: "A pin and a suspension both end, and the agent follows Git again. Below is what it would do \
            next.",
        done: "The application was resumed.",
    }
    Suspend {
        word: "suspend",
        label: "Suspend",
        key: "u",
        consequence: "The agent observes and reports, and changes nothing, until somebody resumes the application. \
            What runs keeps running.",
        done: "The application was suspended.",
    }
    Restart {
        word: "restart",
        label: "Restart",
        key: "",
        consequence: "Every instance of the workload that exists now is replaced, as its update strategy allows. \
            With one instance this may be a short outage.",
        done: "The restart was accepted.",
    }
    Scale {
        word: "scale",
        label: "Scale",
        key: "",
        consequence: "The agent runs another number of instances of the workload than Git says, until a time. It \
            is neither drift nor a revision, and holds for commits that are applied meanwhile.",
        done: "The scaling was accepted.",
    }
    ResetScale {
        word: "reset-scale",
        label: "Reset scale",
        key: "",
        consequence: "The agent runs the number of instances that Git says again.",
        done: "The end of the scaling was accepted.",
    }
    Heal {
        word: "heal",
        label: "Heal once",
        key: "h",
        consequence: "Self-heal is off. The agent undoes the drift once; later changes are reported again.",
        done: "The drift is undone once.",
    }
    UpdateImages {
        word: "update-images",
        label: "Update images",
        key: "m",
        consequence: "The agent deploys the newer images that the registry has, as a revision. It keeps them until \
            Git names another reference, or the registry has newer ones and you ask again.",
        done: "The newer images are being deployed.",
    }
    Adopt {
        word: "adopt",
        label: "Adopt",
        key: "i",
        consequence: "The agent takes over the containers, networks and volumes that Docker Compose created, or \
            the services of `docker stack deploy`. Those that are as in Git keep running; others are replaced.",
        done: "The objects that it found running were adopted.",
    }
    Prune {
        word: "prune",
        label: "Confirm prune",
        key: "c",
        consequence: "The newest commit drops many workloads at once, so the agent has kept them. Confirming \
            removes their containers and networks. Volumes are kept.",
        done: "The removal was confirmed.",
    }
    AcceptRewrite {
        word: "accept-rewrite",
        label: "Accept rewritten history",
        key: "w",
        consequence: "The history of the followed branch was rewritten, and the agent has rejected it. Accepting \
            applies the rewritten commit.",
        done: "The rewritten history was accepted.",
    }
    Retry {
        word: "retry",
        label: "Retry",
        key: "e",
        consequence: "If the newest commit has failed, the agent tries it once more, from the beginning. If not, \
            it starts the Jobs, hooks and containers again that failed for good.",
        done: "What failed is tried once more.",
    }
    Promote {
        word: "promote",
        label: "Promote",
        key: "v",
        consequence: "The pause of the canary ends: its next step begins, or after the last step all instances are \
            replaced.",
        done: "The canary was promoted.",
    }
    Abort {
        word: "abort",
        label: "Abort canary",
        key: "q",
        consequence: "The application goes back to the last revision that succeeded. The commit is skipped until \
            somebody tries it again, or the next commit.",
        done: "The application goes back to the last revision that succeeded.",
    }
    Remove {
        word: "remove",
        label: "Remove",
        key: "x",
        consequence: "Git does not have the application any more. The agent removes its containers and networks, \
            and on request its volumes with all their data.",
        done: "The removal was accepted.",
    }
    Forget {
        word: "forget",
        label: "Forget",
        key: "g",
        consequence: "Git does not have the application any more. The agent stops managing it: its containers, \
            networks and volumes stay as they are, and nobody looks after them.",
        done: "The application is not managed any more.",
    }
}

impl PageAction {
    /// Whether it is an action on one workload. Then its link is in the row of the workload, and it has no key.
    pub(super) fn is_of_workload(self) -> bool {
        matches!(self, Self::Restart | Self::Scale | Self::ResetScale)
    }

    /// Whether it changes what runs now, so that it is refused for a suspended application.
    pub(super) fn changes_what_runs(self) -> bool {
        matches!(
            self,
            Self::Restart
                | Self::Scale
                | Self::Heal
                | Self::UpdateImages
                | Self::Prune
                | Self::Promote
                | Self::Abort
        )
    }

    /// The action with this word in the URL.
    pub(super) fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|action| action.word() == word)
    }
}
