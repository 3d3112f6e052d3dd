//! One task per repository: asks for the tip, renders what is new, and publishes what each application is to be.
//! It touches no Docker; applications subscribe to what it publishes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    deliveries::Announced,
    error::chain,
    trust::{self, Consent, Refusal, Verdict},
};
use driftless_clock::Clock;
use driftless_config as config;
use driftless_files::{AppSpec, Files, Reads, Recorder};
use driftless_git as source;
use driftless_git::{Checkout, Source};
use driftless_manifest as manifest;
use driftless_manifest::Configured;
use driftless_model::{AppName, CommitInfo, Contents, Finding, Format, Missed, Policy, Stack, Timestamp};
use driftless_plan::{fetch_delay, poll_with_jitter};
use driftless_store::Store;

/// Between the beginnings of two fetches that webhooks rang for.
const BETWEEN_RINGS: Duration = Duration::from_secs(2);

/// What a repository says, as of its newest commit.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) commit: Option<CommitInfo>,
    pub(crate) apps: BTreeMap<AppName, Arc<Wanted>>,
    /// About the whole of the repository, such as a missing path. With an error among them, an application
    /// that is not in `apps` is not known to be gone.
    pub(crate) findings: Vec<Finding>,
    /// Why Git could not be asked, if it could not.
    pub(crate) trouble: Option<String>,
    pub(crate) failures: u32,
    pub(crate) next_try: Option<Timestamp>,
    pub(crate) fetched_at: Option<Timestamp>,
    pub(crate) rewritten: bool,
    /// The newest commit, if it may not be taken up.
    pub(crate) refused: Option<Arc<Refusal>>,
    /// A commit that no webhook announced, although one should have.
    pub(crate) missed: Option<Missed>,
}

impl View {
    /// Whether it was read at all, so that absence means something.
    pub(crate) fn is_complete(&self) -> bool {
        self.commit.is_some() && !self.findings.iter().any(Finding::is_error)
    }
}

/// What one application is to be, by one commit.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) spec: AppSpec,
    pub(crate) repository: String,
    pub(crate) url: String,
    pub(crate) reference: String,
    pub(crate) policy: Policy,
    pub(crate) commit: CommitInfo,
    /// `None` when a finding is an error.
    pub(crate) stack: Option<Arc<Stack>>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) contents: Arc<Contents>,
    /// Who signed the commit, where that is asked for.
    pub(crate) signer: Option<String>,
    /// A newer commit that this application does not accept although its repository does.
    pub(crate) refused: Option<Arc<Refusal>>,
    /// What rendering looked at.
    pub(crate) reads: Arc<Reads>,
}

/// One repository under watch.
pub(crate) struct Repository<S> {
    pub(crate) settings: config::Repository,
    pub(crate) source: Arc<S>,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) wake: Arc<Notify>,
    pub(crate) consent: Consent,
    /// By a webhook.
    pub(crate) rung: Arc<Notify>,
    pub(crate) view: watch::Sender<View>,
}

impl<S: Source> Repository<S> {
    /// Fetches for ever.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut known: Option<String> = None;
        if let Err(error) = self.begin(&mut known).await {
            tracing::warn!(repository = self.settings.name, error, "nothing of an earlier run is at hand");
        }
        let mut announced =
            Announced::new(self.store.clone(), &self.settings.name, self.settings.webhook.is_some());
        let mut is_first = true;
        loop {
            let began = Instant::now();
            let mut again = None;
            announced.begin();
            let fetched = tokio::select! {
                () = stop.cancelled() => return,
                fetched = self.source.fetch(known.as_deref()) => fetched,
            };
            let accepted = match fetched {
                Ok(checkout) => {
                    let commit = checkout.commit.clone();
                    let is_refused =
                        self.view.borrow().refused.as_ref().is_some_and(|it| it.commit == commit);
                    let is_new = known.as_ref() != Some(&commit.id) && !is_refused;
                    let accepted = self.accept(checkout, &mut known).await;
                    // What was pushed while no agent ran could not be announced to one.
                    let now = self.clock.now();
                    again = announced.fetched(&commit, is_new, is_new && !is_first, now);
                    is_first = false;
                    accepted
                }
                Err(error) => Err(error),
            };
            let pause = match accepted {
                Ok(()) => again.unwrap_or_else(|| poll_with_jitter(self.settings.poll, self.seed())),
                Err(error) => {
                    announced.failed(&chain(&error), self.clock.now());
                    self.fail(&error)
                }
            };
            self.tell_missed(&announced);
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.rest(began, pause, &mut announced) => {}
            }
        }
    }

    /// Until it is time to fetch again. Webhooks are let through at once, and then not before a while: whoever
    /// knows a secret could otherwise keep the Git server busy.
    async fn rest(&self, began: Instant, pause: Duration, announced: &mut Announced) {
        let mut end = Instant::now() + pause;
        loop {
            let due = announced.due().map(|it| Instant::now() + it.since(self.clock.now()));
            tokio::select! {
                () = self.wake.notified() => return,
                () = self.rung.notified() => end = end.min(began + BETWEEN_RINGS),
                () = sleep_until(end) => return,
                () = sleep_until(due.unwrap_or(end)), if due.is_some() => {
                    announced.look(self.clock.now());
                    self.tell_missed(announced);
                }
            }
        }
    }

    fn tell_missed(&self, announced: &Announced) {
        self.view.send_if_modified(|view| {
            let is_new = view.missed.as_ref() != announced.missed();
            view.missed = announced.missed().cloned();
            is_new
        });
    }

    /// Takes up the commit of the last run, so that a server that is down at the start holds nothing up.
    async fn begin(&self, known: &mut Option<String>) -> Result<(), String> {
        let last = self.store.last_commit(&self.settings.name).map_err(|it| it.to_string())?;
        let Some(commit) = last else { return Ok(()) };
        // Whatever comes must build on it, even if it is itself of no use any more.
        *known = Some(commit.clone());
        let checkout = self.source.local(&commit).await.map_err(|it| it.to_string())?;
        if let Some(policy) = &self.settings.verify
            && !trust::was_verified(&self.store, &self.settings.name, &commit, policy)
        {
            let verdict = self.source.verify(&commit, policy).await.map_err(|it| it.to_string())?;
            if let Err(why) = verdict {
                self.refuse(Refusal::unsigned(&checkout.commit, why), None);
                return Ok(());
            }
        }
        self.publish(checkout, None, known, None).await.map_err(|it| it.to_string())
    }

    async fn accept(&self, checkout: Checkout, known: &mut Option<String>) -> Result<(), source::Error> {
        let now = self.clock.now();
        let is_published = self.view.borrow().commit.as_ref().is_some_and(|it| it.id == checkout.commit.id);
        if is_published {
            self.view.send_modify(|view| {
                view.fetched_at = Some(now);
                (view.trouble, view.failures, view.next_try, view.refused) = (None, 0, None, None);
            });
            return Ok(());
        }
        let judged =
            trust::judge(&self.settings, self.source.as_ref(), &checkout, known.as_deref(), &self.consent)
                .await?;
        let signer = match judged {
            Verdict::Refused(refusal) => {
                self.refuse(refusal, Some(now));
                return Ok(());
            }
            Verdict::Good(signer) => signer,
        };
        let (id, subject) = (checkout.commit.short().to_owned(), checkout.commit.subject.clone());
        tracing::info!(repository = self.settings.name, commit = id, subject, "fetched");
        if let Some(policy) = &self.settings.verify {
            trust::remember(&self.store, &self.settings.name, &checkout.commit.id, policy);
        }
        self.publish(checkout, signer, known, Some(now)).await?;
        self.keep_revisions().await;
        Ok(())
    }

    /// Nothing changes but what is said: the last good commit stays the wanted one.
    fn refuse(&self, refusal: Refusal, at: Option<Timestamp>) {
        let is_news = self.view.borrow().refused.as_deref() != Some(&refusal);
        if is_news {
            let commit = refusal.commit.short();
            tracing::warn!(repository = self.settings.name, commit, reason = refusal.why, "commit refused");
        }
        self.view.send_modify(|view| {
            view.fetched_at = at.or(view.fetched_at);
            (view.trouble, view.failures, view.next_try) = (None, 0, None);
            view.refused = Some(Arc::new(refusal));
        });
    }

    /// Whatever happens to the branch, the commits that can be gone back to stay in the mirror.
    async fn keep_revisions(&self) {
        let commits = || -> Result<Vec<String>, driftless_store::Error> {
            let mut commits = Vec::new();
            for it in self.store.known_applications()? {
                if it.repository == self.settings.name {
                    commits.extend(self.store.revisions(&it.app)?.into_iter().map(|it| it.commit.id));
                }
            }
            commits.sort_unstable();
            commits.dedup();
            Ok(commits)
        };
        let kept = match commits() {
            Ok(commits) => self.source.keep(commits).await.map_err(|it| chain(&it)),
            Err(error) => Err(chain(&error)),
        };
        if let Err(error) = kept {
            tracing::warn!(repository = self.settings.name, error, "not all commits of the history are kept");
        }
    }

    async fn publish(
        &self,
        checkout: Checkout,
        signer: Option<String>,
        known: &mut Option<String>,
        at: Option<Timestamp>,
    ) -> Result<(), source::Error> {
        let commit = checkout.commit.clone();
        let refused =
            trust::judge_applications(&self.settings, self.source.as_ref(), &self.store, &commit).await?;
        let rewritten = checkout.rewritten;
        let settings = self.settings.clone();
        // Reading a commit's files blocks on the disk.
        let before = self.view.borrow().apps.clone();
        let taken = Taken { checkout, signer, refused, before };
        let rendered = tokio::task::spawn_blocking(move || render_all(&settings, &taken)).await;
        let (apps, findings) = match rendered {
            Ok(rendered) => rendered,
            Err(error) => {
                tracing::error!(%error, "rendering broke down");
                self.view.send_modify(|view| view.trouble = Some("rendering broke down; see the log".into()));
                return Ok(());
            }
        };
        for finding in findings.iter().chain(apps.values().flat_map(|it| &it.findings)) {
            tracing::warn!(repository = self.settings.name, "{finding}");
        }
        if let Err(error) = self.store.set_last_commit(&self.settings.name, &commit.id) {
            tracing::warn!(%error, "the commit is not remembered");
        }
        *known = Some(commit.id.clone());
        self.view.send_modify(|view| {
            let before = view.fetched_at;
            *view = View {
                commit: Some(commit),
                apps,
                findings,
                fetched_at: at.or(before),
                rewritten,
                missed: view.missed.take(),
                ..View::default()
            };
        });
        Ok(())
    }

    fn seed(&self) -> u64 {
        crate::seed(&self.settings.name, self.clock.now())
    }

    fn fail(&self, error: &source::Error) -> Duration {
        let failures = self.view.borrow().failures.saturating_add(1);
        let delay = match error {
            source::Error::Transient { retry_after, .. } => {
                fetch_delay(failures, self.seed()).max(retry_after.unwrap_or_default())
            }
            source::Error::Rejected { .. } | source::Error::Damaged { .. } => {
                poll_with_jitter(self.settings.poll, self.seed())
            }
        };
        let text = chain(error);
        tracing::warn!(repository = self.settings.name, error = text, attempt = failures, "could not fetch");
        let next = self.clock.now().after(delay);
        self.view.send_modify(|view| {
            view.trouble = Some(text);
            view.failures = failures;
            view.next_try = Some(next);
        });
        delay
    }
}

/// A commit that is taken up.
struct Taken {
    checkout: Checkout,
    signer: Option<String>,
    /// By whom it is not.
    refused: BTreeMap<AppName, Refusal>,
    /// What applications were to be until now.
    before: BTreeMap<AppName, Arc<Wanted>>,
}

/// Discovers and renders everything that one commit asks for.
fn render_all(
    settings: &config::Repository,
    taken: &Taken,
) -> (BTreeMap<AppName, Arc<Wanted>>, Vec<Finding>) {
    let files = taken.checkout.files.as_ref();
    let configured: Vec<Configured> = settings
        .applications
        .iter()
        .map(|it| Configured {
            name: it.app_name(),
            path: it.path.clone(),
            variables: it.variables.clone(),
            profiles: it.profiles.clone(),
            files: it.files.clone(),
            env_files: it.env_files.clone(),
        })
        .collect();
    let discovery = manifest::discover(files, &settings.path, &settings.name, &configured);
    let one = |spec: AppSpec| {
        let name = spec.name.clone();
        let before = taken.before.get(&name);
        let wanted = match (taken.refused.get(&name), before) {
            (Some(refusal), before) => refused(settings, spec, refusal, before),
            (None, Some(before)) if is_untouched(before, &spec, files) => Wanted {
                commit: taken.checkout.commit.clone(),
                reference: reference_text(&settings.reference, taken.checkout.tag.as_deref()),
                signer: taken.signer.clone(),
                refused: None,
                ..Wanted::clone(before)
            },
            (None, _) => render(settings, spec, taken),
        };
        (name, Arc::new(wanted))
    };
    let mut apps: BTreeMap<_, _> = manifest::on_all_cores(discovery.apps, one).into_iter().collect();
    // A commit that is not accepted cannot take an application away either.
    for (name, refusal) in &taken.refused {
        if let (None, Some(before)) = (apps.get(name), taken.before.get(name)) {
            apps.insert(
                name.clone(),
                Arc::new(refused(settings, before.spec.clone(), refusal, Some(before))),
            );
        }
    }
    (apps, discovery.findings)
}

fn render(settings: &config::Repository, spec: AppSpec, taken: &Taken) -> Wanted {
    let recorder = Recorder::new(taken.checkout.files.as_ref());
    let mut rendered = manifest::render(&recorder, &spec);
    let reads = recorder.finish();
    rendered.findings.extend(reads.collisions().into_iter().map(|(path, other)| {
        let message = format!("differs from `{other}` in the case of its letters only");
        Finding::warning(driftless_model::Location::file(path), "", message)
            .help("a file system that does not tell them apart keeps one of them; rename it")
    }));
    Wanted {
        repository: settings.name.clone(),
        url: settings.url.clone(),
        reference: reference_text(&settings.reference, taken.checkout.tag.as_deref()),
        policy: policy_of(settings, &spec),
        commit: taken.checkout.commit.clone(),
        stack: rendered.stack.map(|it| Arc::new(packed(it))),
        findings: rendered.findings,
        contents: Arc::new(rendered.contents),
        signer: taken.signer.clone(),
        refused: None,
        reads: Arc::new(reads),
        spec,
    }
}

/// Rendering it again would be given the same answers.
fn is_untouched(before: &Wanted, spec: &AppSpec, files: &dyn Files) -> bool {
    before.refused.is_none() && before.spec == *spec && before.reads.hold_in(files)
}

/// As it was before, or, if it was nothing, nothing.
fn refused(
    settings: &config::Repository,
    spec: AppSpec,
    refusal: &Refusal,
    before: Option<&Arc<Wanted>>,
) -> Wanted {
    let refused = Some(Arc::new(refusal.clone()));
    if let Some(before) = before {
        return Wanted { refused, ..Wanted::clone(before) };
    }
    Wanted {
        repository: settings.name.clone(),
        url: settings.url.clone(),
        reference: reference_text(&settings.reference, None),
        policy: policy_of(settings, &spec),
        commit: refusal.commit.clone(),
        stack: None,
        findings: vec![refusal.finding()],
        contents: Arc::default(),
        signer: None,
        refused,
        reads: Arc::default(),
        spec,
    }
}

/// Renders one application of one commit again, for what it mounts.
pub(crate) async fn contents_of<S: Source>(
    source: &S,
    commit: &str,
    spec: AppSpec,
) -> Result<Contents, source::Error> {
    let checkout = source.local(commit).await?;
    let rendered =
        tokio::task::spawn_blocking(move || manifest::render(checkout.files.as_ref(), &spec)).await;
    Ok(rendered.map(|it| it.contents).unwrap_or_default())
}

/// A map that was filled one by one has twice the room that it needs, and this one is kept.
fn packed(mut stack: Stack) -> Stack {
    for workload in stack.workloads.values_mut() {
        workload.container.host.trim();
        workload.parts.iter_mut().for_each(|it| it.container.host.trim());
    }
    Stack { workloads: stack.workloads.into_iter().collect(), ..stack }
}

/// The policy of the application's own settings, or that of its repository. Names are unique in a repository.
fn policy_of(settings: &config::Repository, spec: &AppSpec) -> Policy {
    let is_of_app = |it: &&config::ApplicationSettings| it.app_name().as_ref() == Some(&spec.name);
    settings.applications.iter().find(is_of_app).map_or(&settings.policy, |it| &it.policy).clone()
}

pub(crate) fn reference_text(reference: &config::Reference, tag: Option<&str>) -> String {
    match reference {
        config::Reference::Head => "HEAD".into(),
        config::Reference::Branch(name) | config::Reference::Tag(name) => name.clone(),
        config::Reference::Semver(range) => match tag {
            Some(tag) => format!("{tag} ({range})"),
            None => range.to_string(),
        },
        config::Reference::Commit(id) => id.clone(),
    }
}

/// An application that Git or the configuration does not have any more.
pub(crate) fn gone(app: &AppName, repository: &str, commit: CommitInfo, policy: Policy) -> Wanted {
    Wanted {
        spec: AppSpec {
            name: app.clone(),
            path: String::new(),
            format: Format::Compose,
            files: Vec::new(),
            variables: BTreeMap::new(),
            profiles: Vec::new(),
            env_files: Vec::new(),
            has_listed_files: false,
        },
        repository: repository.to_owned(),
        url: String::new(),
        reference: String::new(),
        policy,
        commit,
        stack: None,
        findings: Vec::new(),
        contents: Arc::default(),
        signer: None,
        refused: None,
        reads: Arc::default(),
    }
}
