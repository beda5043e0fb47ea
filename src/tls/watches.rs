//! What the keeper sees: a watch for the Secret and for each of the two webhook configurations, by name.

use std::fmt::Debug;

use futures::{StreamExt, future::ready, stream::BoxStream};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt, watcher, watcher::Event},
};
use serde::de::DeserializeOwned;
use tracing::warn;

use crate::patience::watch_config;

use super::{
    configuration::{Configuration, Kind},
    rotation::Published,
};

/// Something that a watch or an answer to a write has shown.
#[derive(Debug)]
pub(super) enum Seen {
    Secret(Box<Observation<Secret>>),
    Configuration(Kind, Observation<Configuration>),
}

/// An object, as far as it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Known<T> {
    /// It was not looked for yet.
    #[default]
    Unknown,
    /// It does not exist.
    Absent,
    /// It is this.
    Present(T),
}

impl<T> Known<T> {
    fn as_ref(&self) -> Known<&T> {
        match self {
            Self::Unknown => Known::Unknown,
            Self::Absent => Known::Absent,
            Self::Present(object) => Known::Present(object),
        }
    }

    fn present(&self) -> Option<&T> {
        match self {
            Self::Present(object) => Some(object),
            Self::Unknown | Self::Absent => None,
        }
    }
}

/// The state of one object at one resourceVersion.
#[derive(Debug)]
pub(super) struct Observation<T> {
    object: Known<T>,
    /// 0 where it is not known.
    version: u64,
    /// Asked for, and not an event: it holds even if its version is lower than what was seen before, as it is after etcd was restored.
    listed: bool,
}

impl<T> Observation<T> {
    fn present(object: T, version: u64, listed: bool) -> Self {
        Self {
            object: Known::Present(object),
            version,
            listed,
        }
    }

    pub(super) fn absent(version: u64, listed: bool) -> Self {
        Self {
            object: Known::Absent,
            version,
            listed,
        }
    }
}

impl Seen {
    /// The Secret as the API server has just answered.
    pub(super) fn written_secret(secret: Secret) -> Self {
        let version = version(&secret);
        Self::Secret(Box::new(Observation::present(secret, version, false)))
    }

    /// The configuration as the API server has just answered.
    pub(super) fn written_configuration(configuration: Configuration) -> Self {
        let version = configuration.resource_version.parse().unwrap_or(0);
        Self::Configuration(
            configuration.kind,
            Observation::present(configuration, version, false),
        )
    }
}

/// The newest state of one object.
#[derive(Debug)]
struct Newest<T> {
    object: Known<T>,
    version: u64,
}

impl<T> Default for Newest<T> {
    fn default() -> Self {
        Self {
            object: Known::Unknown,
            version: 0,
        }
    }
}

impl<T> Newest<T> {
    /// A watch lags behind the answers to writes: what is older than they are is not news.
    fn see(&mut self, seen: Observation<T>) {
        if seen.listed || seen.version == 0 || seen.version >= self.version {
            self.object = seen.object;
            self.version = seen.version;
        }
    }
}

/// What is known of all three objects.
#[derive(Debug, Default)]
pub(super) struct View {
    secret: Newest<Secret>,
    mutating: Newest<Configuration>,
    validating: Newest<Configuration>,
}

impl View {
    pub(super) fn see(&mut self, seen: Seen) {
        match seen {
            Seen::Secret(observation) => self.secret.see(*observation),
            Seen::Configuration(Kind::Mutating, observation) => self.mutating.see(observation),
            Seen::Configuration(Kind::Validating, observation) => self.validating.see(observation),
        }
    }

    /// The Secret.
    pub(super) fn secret(&self) -> Known<&Secret> {
        self.secret.object.as_ref()
    }

    /// Takes in the Secret as it was read, or that there is none; says whether that is news.
    pub(super) fn see_secret(&mut self, read: Option<Secret>) -> bool {
        let (object, version) = match read {
            Some(secret) => {
                let version = version(&secret);
                (Known::Present(secret), version)
            }
            None => (Known::Absent, 0),
        };
        let news = object != self.secret.object;
        self.secret.see(Observation {
            object,
            version,
            listed: true,
        });
        news
    }

    /// The configurations that exist.
    pub(super) fn configurations(&self) -> impl Iterator<Item = &Configuration> {
        [&self.mutating, &self.validating]
            .into_iter()
            .filter_map(|newest| newest.object.present())
    }

    /// The configuration of this kind.
    pub(super) fn configuration(&self, kind: Kind) -> Known<&Configuration> {
        match kind {
            Kind::Mutating => self.mutating.object.as_ref(),
            Kind::Validating => self.validating.object.as_ref(),
        }
    }

    /// What is published, once both configurations have been looked for.
    pub(super) fn published(&self) -> Option<Published> {
        let known = [&self.mutating, &self.validating]
            .iter()
            .all(|newest| newest.object != Known::Unknown);
        let bundles = || {
            self.configurations()
                .flat_map(|configuration| configuration.bundles.clone())
                .collect()
        };
        known.then(|| Published { bundles: bundles() })
    }
}

/// The state of the object of that name, now and after every change. Errors are logged and the watch begins anew.
pub(super) fn observe<K, T>(
    api: Api<K>,
    name: &str,
    convert: impl Fn(K) -> T + Send + 'static,
) -> BoxStream<'static, Observation<T>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    T: Send + 'static,
{
    let config = watch_config().fields(&format!("metadata.name={name}"));
    let name = name.to_owned();
    watcher(api, config)
        .default_backoff()
        .inspect(move |event| {
            if let Err(error) = event {
                let kind = K::kind(&());
                warn!(%error, %kind, name, "cannot watch; is Flock allowed to get, list and watch it by that name?");
            }
        })
        .filter_map(|event| ready(event.ok()))
        .scan(None, move |listing, event| ready(Some(observation(listing, event, &convert))))
        .filter_map(ready)
        .boxed()
}

fn observation<K: Resource, T>(
    listing: &mut Option<K>,
    event: Event<K>,
    convert: &impl Fn(K) -> T,
) -> Option<Observation<T>> {
    let present = |object: K, listed| {
        let version = version(&object);
        Observation::present(convert(object), version, listed)
    };
    match event {
        Event::Init => {
            *listing = None;
            None
        }
        Event::InitApply(object) => {
            *listing = Some(object);
            None
        }
        Event::InitDone => Some(match listing.take() {
            Some(object) => present(object, true),
            None => Observation::absent(0, true),
        }),
        Event::Apply(object) => Some(present(object, false)),
        Event::Delete(object) => Some(Observation::absent(version(&object), false)),
    }
}

fn version<K: Resource>(object: &K) -> u64 {
    object
        .meta()
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

/// All three watches as one.
pub(super) fn merged(
    secret: BoxStream<'static, Observation<Secret>>,
    configurations: impl IntoIterator<Item = (Kind, BoxStream<'static, Observation<Configuration>>)>,
) -> BoxStream<'static, Seen> {
    let secret = secret
        .map(|observation| Seen::Secret(Box::new(observation)))
        .boxed();
    let configurations = configurations.into_iter().map(|(kind, stream)| {
        stream
            .map(move |observation| Seen::Configuration(kind, observation))
            .boxed()
    });
    let all: Vec<_> = std::iter::once(secret).chain(configurations).collect();
    futures::stream::select_all(all).boxed()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn secret(version: &str) -> Secret {
        let mut secret = Secret::default();
        secret.metadata.resource_version = Some(version.into());
        secret
    }

    impl Known<&str> {
        fn owned(&self) -> Known<String> {
            match self {
                Self::Unknown => Known::Unknown,
                Self::Absent => Known::Absent,
                Self::Present(version) => Known::Present((*version).to_owned()),
            }
        }
    }

    /// Feeds events as a watch does and returns the version that is known in the end.
    fn known(events: Vec<Event<Secret>>) -> Known<String> {
        let mut view = View::default();
        let mut listing = None;
        for event in events {
            if let Some(observation) = observation(&mut listing, event, &|secret| secret) {
                view.see(Seen::Secret(Box::new(observation)));
            }
        }
        match view.secret() {
            Known::Unknown => Known::Unknown,
            Known::Absent => Known::Absent,
            Known::Present(secret) => Known::Present(secret.metadata.resource_version.clone().unwrap()),
        }
    }

    #[rstest]
    #[case::before_the_list_is_complete(vec![Event::Init, Event::InitApply(secret("5"))], Known::Unknown)]
    #[case::an_empty_list(vec![Event::Init, Event::InitDone], Known::Absent)]
    #[case::a_list(vec![Event::Init, Event::InitApply(secret("5")), Event::InitDone], Known::Present("5"))]
    #[case::a_change(vec![Event::Apply(secret("5")), Event::Apply(secret("6"))], Known::Present("6"))]
    #[case::an_older_change(vec![Event::Apply(secret("6")), Event::Apply(secret("5"))], Known::Present("6"))]
    #[case::a_deletion(vec![Event::Apply(secret("5")), Event::Delete(secret("6"))], Known::Absent)]
    #[case::a_deletion_before_it(vec![Event::Apply(secret("6")), Event::Delete(secret("5"))], Known::Present("6"))]
    #[case::a_list_after_a_restore(
        vec![Event::Apply(secret("6")), Event::Init, Event::InitApply(secret("2")), Event::InitDone],
        Known::Present("2"))]
    #[case::a_list_without_it(vec![Event::Apply(secret("6")), Event::Init, Event::InitDone], Known::Absent)]
    fn the_newest_state_is_known(#[case] events: Vec<Event<Secret>>, #[case] wanted: Known<&str>) {
        assert_eq!(known(events), wanted.owned());
    }

    #[test]
    fn a_secret_that_was_read_is_news_only_if_the_watch_has_not_shown_it() {
        let mut view = View::default();
        view.see(Seen::written_secret(secret("5")));
        assert!(!view.see_secret(Some(secret("5"))));
        assert!(view.see_secret(Some(secret("7"))));
        view.see(Seen::written_secret(secret("6")));
        assert_eq!(
            view.secret(),
            Known::Present(&secret("7")),
            "the watch lags behind"
        );
        assert!(view.see_secret(Some(secret("2"))), "etcd was restored");
        assert!(view.see_secret(None));
        assert!(!view.see_secret(None));
    }

    #[test]
    fn nothing_is_published_before_both_configurations_were_looked_for() {
        let mut view = View::default();
        assert_eq!(view.published(), None);
        view.see(Seen::Configuration(Kind::Mutating, Observation::absent(0, true)));
        assert_eq!(view.published(), None);
        view.see(Seen::Configuration(
            Kind::Validating,
            Observation::absent(0, true),
        ));
        assert_eq!(view.published(), Some(Published::default()));
    }
}
