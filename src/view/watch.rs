//! The watches that feed the view. Pods and workloads are watched by the flock's label, so that clusters of any
//! size cost what their flocks cost; nodes, namespaces and Services whole, of which only small facts are kept.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, unfold};
use futures::{Stream, StreamExt};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use kube::api::{Api, ObjectMeta, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument, info, info_span, warn};

use crate::identity::{FlockKey, keys};
use crate::patience::watch_config;
use crate::place::NodeFacts;
use crate::storage::COMPONENT;

use super::hearing::hearing;
use super::{
    ClaimFacts, HelperFacts, NamespaceFacts, PodFacts, ServiceFacts, SharedView, Source, View, VolumeFacts,
    WorkloadFacts,
};

type Observer = Arc<dyn Fn(&FlockKey, &PodFacts) + Send + Sync>;

/// Runs every watch until one of them ends, which none does. `observe_pod` hears of each pod that appears or
/// changes, before the listener does: the reservations of the webhook end that way. Helpers are looked for in
/// `own_namespace`. Each event of pods, workloads, nodes, namespaces and Services counts only `delay` after it came:
/// a test's way to a replica that lags.
pub async fn run(
    client: Client,
    view: SharedView,
    own_namespace: String,
    observe_pod: Observer,
    delay: Duration,
) {
    let mut watches = JoinSet::new();
    let late = |source| Watch {
        source,
        client: client.clone(),
        view: view.clone(),
        delay,
    };
    follow_members(&late, observe_pod, &mut watches);
    follow_cluster(&late, &mut watches);
    let watch = |source| Watch {
        delay: Duration::ZERO,
        ..late(source)
    };
    follow_storage(&watch, &own_namespace, &mut watches);
    // A watch never ends by itself; if one does (a panic), the process must not go on half blind.
    watches.join_next().await;
}

/// What carries the flock's label.
fn members() -> watcher::Config {
    watch_config().labels(keys::NAME)
}

fn follow_members(watch: &impl Fn(Source) -> Watch, observe_pod: Observer, watches: &mut JoinSet<()>) {
    watches.spawn(watch(Source::Pods).follow(
        Api::<Pod>::all,
        members(),
        move |view, pod| {
            let read = PodFacts::read(&pod);
            if let Some((key, facts)) = &read {
                observe_pod(key, facts);
            }
            let (namespace, name, uid) = identity(pod.metadata);
            view.pod_seen(&namespace, &name, &uid, read)
        },
        |view, pod| {
            let (namespace, name, uid) = identity(pod.metadata);
            view.pod_gone(&namespace, &name, &uid)
        },
    ));
    watches.spawn(watch(Source::ReplicaSets).follow(
        Api::<ReplicaSet>::all,
        members(),
        |view, set| {
            let read = WorkloadFacts::read_replica_set(&set);
            let (namespace, _, uid) = identity(set.metadata);
            view.workload_seen(&namespace, &uid, read)
        },
        |view, set| {
            let (namespace, _, uid) = identity(set.metadata);
            view.workload_gone(&namespace, &uid)
        },
    ));
    watches.spawn(watch(Source::ReplicationControllers).follow(
        Api::<ReplicationController>::all,
        members(),
        |view, rc| {
            let read = WorkloadFacts::read_replication_controller(&rc);
            let (namespace, _, uid) = identity(rc.metadata);
            view.workload_seen(&namespace, &uid, read)
        },
        |view, rc| {
            let (namespace, _, uid) = identity(rc.metadata);
            view.workload_gone(&namespace, &uid)
        },
    ));
}

fn follow_cluster(watch: &impl Fn(Source) -> Watch, watches: &mut JoinSet<()>) {
    watches.spawn(watch(Source::Nodes).follow(
        Api::<Node>::all,
        watch_config(),
        |view, node| view.apply_node(NodeFacts::from(&node)),
        |view, node| view.delete_node(&node.name_any()),
    ));
    watches.spawn(watch(Source::Namespaces).follow(
        Api::<PartialObjectMeta<Namespace>>::all,
        watch_config(),
        |view, namespace| view.apply_namespace(NamespaceFacts::from(&namespace.metadata)),
        |view, namespace| view.delete_namespace(&namespace.name_any()),
    ));
    watches.spawn(watch(Source::Services).follow(
        Api::<Service>::all,
        watch_config(),
        |view, service| {
            ServiceFacts::read(&service)
                .map(|facts| view.apply_service(facts))
                .unwrap_or_default()
        },
        |view, service| match ServiceFacts::read(&service) {
            Some(facts) => view.delete_service(&facts.namespace, &facts.name, &facts.uid),
            None => Vec::new(),
        },
    ));
}

fn follow_storage(watch: &impl Fn(Source) -> Watch, own_namespace: &str, watches: &mut JoinSet<()>) {
    let component = format!("app.kubernetes.io/component={COMPONENT}");
    watches.spawn(watch(Source::Helpers).follow(
        |client| Api::<Pod>::namespaced(client, own_namespace),
        watch_config().labels(&component),
        |view, pod| {
            HelperFacts::read(&pod)
                .map(|facts| view.storage_mut().apply_helper(facts))
                .unwrap_or_default()
        },
        |view, pod| {
            HelperFacts::read(&pod)
                .map(|facts| view.storage_mut().delete_helper(&facts))
                .unwrap_or_default()
        },
    ));
    watches.spawn(watch(Source::Claims).follow(
        Api::<PersistentVolumeClaim>::all,
        members(),
        |view, claim| {
            ClaimFacts::read(&claim)
                .map(|facts| view.storage_mut().apply_claim(facts))
                .unwrap_or_default()
        },
        |view, claim| {
            ClaimFacts::read(&claim)
                .map(|facts| view.storage_mut().delete_claim(&facts))
                .unwrap_or_default()
        },
    ));
    watches.spawn(watch(Source::Volumes).follow(
        Api::<PersistentVolume>::all,
        members(),
        |view, pv| {
            VolumeFacts::read(&pv)
                .map(|facts| view.storage_mut().apply_volume(facts))
                .unwrap_or_default()
        },
        |view, pv| {
            VolumeFacts::read(&pv)
                .map(|facts| view.storage_mut().delete_volume(&facts))
                .unwrap_or_default()
        },
    ));
}

/// Namespace, name and uid.
fn identity(of: ObjectMeta) -> (String, String, String) {
    let text = Option::unwrap_or_default;
    (text(of.namespace), text(of.name), text(of.uid))
}

struct Watch {
    source: Source,
    client: Client,
    view: SharedView,
    delay: Duration,
}

impl Watch {
    /// The view changes by what the watch of `api`, which is made with this watch's client, brings.
    fn follow<K, A, D>(
        self,
        api: impl FnOnce(Client) -> Api<K>,
        config: watcher::Config,
        apply: A,
        delete: D,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        K::DynamicType: Default + Eq + Hash + Clone,
        A: Fn(&mut View, K) -> Vec<FlockKey> + Send + 'static,
        D: Fn(&mut View, K) -> Vec<FlockKey> + Send + 'static,
    {
        let span = info_span!("watch", of = self.source.name());
        let api = api(hearing(&self.client, &self.view, self.source));
        let work = async move {
            let mut events = delayed(watcher(api, config).default_backoff(), self.delay);
            let mut seen = BTreeSet::new();
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::Apply(object)) => self.view.update(|view| apply(view, object)),
                    Ok(watcher::Event::Delete(object)) => self.view.update(|view| delete(view, object)),
                    Ok(watcher::Event::Init) => {
                        self.view.begins_list(self.source);
                        seen.clear();
                    }
                    Ok(watcher::Event::InitApply(object)) => {
                        seen.extend(object.uid());
                        self.view.update(|view| apply(view, object));
                    }
                    Ok(watcher::Event::InitDone) => {
                        self.view.update(|view| view.forget_unseen(self.source, &seen));
                        info!(objects = seen.len(), "listed");
                        seen.clear();
                        self.view.set_synced(self.source);
                    }
                    Err(error) => warn!(%error, "watch failed; it starts again after a pause"),
                }
            }
        };
        work.instrument(span)
    }
}

/// The items of `stream`, each `delay` after it came.
fn delayed<T: Send + 'static>(
    stream: impl Stream<Item = T> + Send + 'static,
    delay: Duration,
) -> BoxStream<'static, T> {
    if delay.is_zero() {
        return stream.boxed();
    }
    let (sender, receiver) = mpsc::unbounded_channel();
    let came = stream.map(move |item| (Instant::now() + delay, item));
    tokio::spawn(came.for_each(move |item| {
        // Where nobody listens any more, the process ends.
        let _ = sender.send(item);
        std::future::ready(())
    }));
    let wait = |mut receiver: mpsc::UnboundedReceiver<(Instant, T)>| async {
        let (due, item) = receiver.recv().await?;
        sleep_until(due).await;
        Some((item, receiver))
    };
    unfold(receiver, wait).boxed()
}
