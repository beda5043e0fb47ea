//! The steps, each with what it proves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use flock_lab::human;
use serde_json::Value;

use super::cluster::{Cluster, NAMESPACE};
use super::etcd;
use crate::{image, install, say};

const MEMBERS: [&str; 3] = ["etcd-0", "etcd-1", "etcd-2"];
const KEY: &str = "flock";
const VALUE: &str = "stays";

/// A member as the API server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    node: String,
    ip: String,
    uid: String,
    ready: bool,
    leaving: bool,
    image: String,
}

/// Runs all steps.
pub(crate) fn run(cluster: &Cluster) -> Result<()> {
    let demo = Steps {
        cluster,
        count: std::cell::Cell::new(0),
    };
    if cluster.runs_containers() {
        demo.step("Install Flock from deploy/ and webhook-config/", Steps::install)?;
    } else {
        say("Nodes are fake: Flock runs as two processes, and what needs containers is left out.");
    }
    demo.step("Apply a plain ReplicaSet of three etcd members", Steps::apply)?;
    if cluster.runs_containers() {
        demo.step("Write a key", Steps::write)?;
    }
    demo.step("Delete a member", Steps::delete)?;
    demo.step("Look names up", Steps::look_up)?;
    demo.step(
        "Hand the flock over from the ReplicaSet to a Deployment",
        Steps::to_deployment,
    )?;
    demo.step(
        "Roll the image with the Deployment's default strategy",
        Steps::roll,
    )
}

struct Steps<'a> {
    cluster: &'a Cluster,
    count: std::cell::Cell<u32>,
}

impl Steps<'_> {
    fn step(&self, title: &str, act: impl Fn(&Self) -> Result<String>) -> Result<()> {
        self.count.set(self.count.get() + 1);
        say(&format!("\n{}. {title}", self.count.get()));
        let begin = Instant::now();
        let proof = act(self).with_context(|| format!("step {} failed: {title}", self.count.get()))?;
        say(&format!("   {proof} ({})", human(begin.elapsed())));
        Ok(())
    }

    fn install(&self) -> Result<String> {
        install::install(self.cluster.lab())?;
        Ok("Two replicas are Ready, and the API server trusts the CA that they made".into())
    }

    fn apply(&self) -> Result<String> {
        let namespace = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}");
        self.cluster.lab().apply(&namespace)?;
        self.cluster
            .kubectl(&["apply", "-f", &example("replicaset.yaml")])?;
        let members = self.all_ready()?;
        let mut nodes: Vec<_> = members.values().map(|member| &member.node).collect();
        nodes.sort();
        nodes.dedup();
        ensure!(nodes.len() == 3, "the members share nodes: {members:?}");
        for (name, member) in &members {
            say(&format!("   {name} runs on {} as {}", member.node, member.ip));
        }
        if !self.cluster.runs_containers() {
            return Ok("Three members, each with its ordinal's name and a node of its own".into());
        }
        etcd::wait_healthy(self.cluster)?;
        Ok(
            "Three members found each other by their names, each on a node of its own; etcd is healthy"
                .into(),
        )
    }

    fn write(&self) -> Result<String> {
        etcd::put(self.cluster, "etcd-0", KEY, VALUE)?;
        for member in MEMBERS {
            self.cluster
                .exec(member, &["sh", "-c", "echo \"$HOSTNAME\" > /data/marker"])?;
        }
        self.cluster.eventually("the key on every member", || {
            let values: Result<Vec<_>> = MEMBERS
                .iter()
                .map(|member| etcd::get_local(self.cluster, member, KEY))
                .collect();
            Ok(values?.iter().all(|value| value == VALUE).then_some(()))
        })?;
        Ok(format!(
            "{KEY}={VALUE} is stored by all three, and each has a file with its name beside etcd's data"
        ))
    }

    fn delete(&self) -> Result<String> {
        let before = self.all_ready()?;
        let id = self.id("etcd-1")?;
        self.cluster
            .kubectl(&["delete", "pod", "etcd-1", "--wait=false"])?;
        let after = self.cluster.eventually("a new etcd-1", || {
            let members = self.members()?;
            let new = members
                .get("etcd-1")
                .filter(|member| member.ready && member.uid != before["etcd-1"].uid);
            Ok(new.cloned())
        })?;
        let old = &before["etcd-1"];
        ensure!(
            after.node == old.node,
            "etcd-1 moved from {} to {}",
            old.node,
            after.node
        );
        self.expect_address("etcd-1", &after.ip)?;
        self.expect_data("etcd-1")?;
        ensure!(self.id("etcd-1")? == id, "etcd-1 joined under another id");
        let data = if self.cluster.runs_containers() {
            "; it found its file and rejoined etcd under its old id"
        } else {
            ""
        };
        Ok(format!(
            "etcd-1 is back with its name, on {}; DNS has its new address {}{data}",
            after.node, after.ip
        ))
    }

    fn look_up(&self) -> Result<String> {
        let member = &self.all_ready()?["etcd-2"];
        let full = format!("etcd-2.etcd.{NAMESPACE}.svc.cluster.local");
        if !self.cluster.runs_containers() {
            self.expect_address("etcd-2", &member.ip)?;
            let names = self.cluster.lab().dns_lookup_ptr(member.ip.parse()?)?;
            ensure!(
                names.iter().any(|name| name.trim_end_matches('.') == full),
                "PTR gives {names:?}"
            );
            return Ok(format!("A: {full} is {0}; PTR: {0} is {full}", member.ip));
        }
        let a = self.cluster.exec("etcd-0", &["nslookup", &full])?;
        ensure!(
            a.contains(&member.ip),
            "nslookup {full} in a pod does not give {}: {a}",
            member.ip
        );
        let ptr = self.cluster.exec("etcd-0", &["nslookup", &member.ip])?;
        ensure!(
            ptr.contains(&full),
            "nslookup {} in a pod does not give {full}: {ptr}",
            member.ip
        );
        Ok(format!(
            "Inside etcd-0, A: {full} is {0}; PTR: {0} is {full}",
            member.ip
        ))
    }

    fn to_deployment(&self) -> Result<String> {
        let before = self.all_ready()?;
        self.cluster.kubectl(&["delete", "replicaset", "etcd"])?;
        self.cluster
            .kubectl(&["apply", "-f", &example("deployment.yaml")])?;
        let after = self.cluster.eventually("three members of the Deployment", || {
            let members = self.members()?;
            let new = members.values().filter(|m| m.ready).count() == 3
                && members
                    .iter()
                    .all(|(name, m)| before.get(name).is_some_and(|old| old.uid != m.uid));
            Ok(new.then_some(members))
        })?;
        for (name, member) in &after {
            ensure!(
                member.node == before[name].node,
                "{name} moved to {}",
                member.node
            );
            self.expect_data(name)?;
        }
        Ok("The same names run on the same nodes and find their data: they belong to the flock, not to its owner".into())
    }

    fn roll(&self) -> Result<String> {
        let before = self.all_ready()?;
        self.cluster
            .kubectl(&["set", "image", "deployment/etcd", "etcd=etcd:demo-next"])?;
        let rolled = std::cell::RefCell::new(Vec::new());
        let most = std::cell::Cell::new(0);
        let arrived = std::cell::RefCell::new(BTreeSet::new());
        self.cluster.eventually("the new image on every member", || {
            let members = self.members()?;
            // Away is who is not there, leaves, or has not been Ready yet. Who was Ready and is not for a moment (etcd
            // elects a leader whenever one leaves) was not made so by the rollout.
            let mut arrived = arrived.borrow_mut();
            arrived.extend(
                members
                    .values()
                    .filter(|member| member.ready)
                    .map(|member| member.uid.clone()),
            );
            let here = |member: &Member| !member.leaving && arrived.contains(&member.uid);
            let down = MEMBERS
                .iter()
                .filter(|name| !members.get(**name).is_some_and(here))
                .count();
            most.set(most.get().max(down));
            let extra: Vec<_> = members
                .keys()
                .filter(|name| !MEMBERS.contains(&name.as_str()))
                .collect();
            ensure!(
                extra.is_empty(),
                "the rollout made pods beside the members: {extra:?}"
            );
            for (name, member) in &members {
                let mut rolled = rolled.borrow_mut();
                if member.image == "etcd:demo-next" && !rolled.contains(name) {
                    rolled.push(name.clone());
                }
            }
            let done = members.len() == 3 && members.values().all(|m| m.ready && m.image == "etcd:demo-next");
            Ok(done.then_some(()))
        })?;
        let rolled = rolled.into_inner();
        ensure!(
            rolled == ["etcd-2", "etcd-1", "etcd-0"],
            "the order was {rolled:?}"
        );
        ensure!(most.get() <= 1, "{} members were away at one time", most.get());
        let after = self.all_ready()?;
        for (name, member) in &after {
            ensure!(
                member.node == before[name].node,
                "{name} moved to {}",
                member.node
            );
            self.expect_data(name)?;
        }
        Ok(format!(
            "{} rolled in this order, one at a time, by maxSurge 25 % and maxUnavailable 25 %; nodes and data stayed",
            rolled.join(", ")
        ))
    }

    fn id(&self, pod: &str) -> Result<String> {
        if self.cluster.runs_containers() {
            etcd::member_id(self.cluster, pod)
        } else {
            Ok(String::new())
        }
    }

    fn expect_data(&self, pod: &str) -> Result<()> {
        if !self.cluster.runs_containers() {
            return Ok(());
        }
        let marker = self.cluster.exec(pod, &["cat", "/data/marker"])?;
        ensure!(
            marker.trim() == pod,
            "{pod} finds the file of {:?}",
            marker.trim()
        );
        let value = etcd::get_local(self.cluster, pod, KEY)?;
        ensure!(value == VALUE, "{pod} has {value:?} for {KEY}");
        Ok(())
    }

    /// DNS follows EndpointSlices, so this may take a moment.
    fn expect_address(&self, pod: &str, ip: &str) -> Result<()> {
        self.cluster.eventually(&format!("{pod} at {ip} in DNS"), || {
            if self.cluster.runs_containers() {
                let other = MEMBERS
                    .iter()
                    .find(|member| **member != pod)
                    .unwrap_or(&MEMBERS[0]);
                let answer = self.cluster.exec(
                    other,
                    &["nslookup", &format!("{pod}.etcd.{NAMESPACE}.svc.cluster.local")],
                )?;
                return Ok(answer.contains(ip).then_some(()));
            }
            let name = format!("{pod}.etcd.{NAMESPACE}.svc.cluster.local");
            Ok(self
                .cluster
                .lab()
                .dns_lookup_a(&name)?
                .contains(&ip.parse()?)
                .then_some(()))
        })
    }

    fn all_ready(&self) -> Result<BTreeMap<String, Member>> {
        self.cluster.eventually("three Ready members", || {
            let members = self.members()?;
            let ready = MEMBERS
                .iter()
                .all(|name| members.get(*name).is_some_and(|member| member.ready));
            Ok((ready && members.len() == 3).then_some(members))
        })
    }

    fn members(&self) -> Result<BTreeMap<String, Member>> {
        let out = self
            .cluster
            .kubectl(&["get", "pods", "-l", "flock.dev/name=etcd", "-o", "json"])?;
        let list: Value = serde_json::from_str(&out)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pods = list["items"].as_array().context("kubectl gave no list")?;
        Ok(pods
            .iter()
            .map(|pod| {
                let conditions = pod["status"]["conditions"].as_array();
                let ready = conditions.is_some_and(|all| {
                    all.iter()
                        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
                });
                let member = Member {
                    node: text(&pod["spec"]["nodeName"]),
                    ip: text(&pod["status"]["podIP"]),
                    uid: text(&pod["metadata"]["uid"]),
                    ready: ready && pod["metadata"]["deletionTimestamp"].is_null(),
                    leaving: !pod["metadata"]["deletionTimestamp"].is_null(),
                    image: text(&pod["spec"]["containers"][0]["image"]),
                };
                (text(&pod["metadata"]["name"]), member)
            })
            .collect())
    }
}

fn example(file: &str) -> String {
    image::root()
        .join("examples/etcd")
        .join(file)
        .display()
        .to_string()
}
