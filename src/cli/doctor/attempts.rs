//! What is tried, to see what happens. Always with `dry run`, so that nothing is stored.

use std::time::{Duration, Instant};

use axum::http::{Method, Request, header};
use http_body_util::BodyExt;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, PostParams};
use kube::client::Body;
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::judge::probe::{self, Answer, Probe};
use super::judge::server::{Fence, Server};
use super::seen::words;
use crate::identity::NODE_LABEL_DOMAIN;

/// So many probes of each sort: both replicas have a chance to be asked, and one slow answer is no measure.
const ROUNDS: usize = 5;

/// The API server's version and time, and what it answers to kubelets.
pub async fn server(client: &Client) -> kube::Result<Server> {
    let request = Request::get("/version")
        .body(Body::empty())
        .map_err(kube::Error::HttpError)?;
    let begin = Timestamp::now();
    let answer = client.send(request).await?;
    let here = begin + Timestamp::now().duration_since(begin) / 2;
    let date = answer
        .headers()
        .get(header::DATE)
        .and_then(|date| date.to_str().ok());
    // GMT is no zone of the parser's own format, but one that RFC 9110 and RFC 2822 have in common.
    let time = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
    let version: k8s_openapi::apimachinery::pkg::version::Info =
        serde_json::from_slice(&body(answer.into_body()).await?).map_err(kube::Error::SerdeError)?;
    Ok(Server {
        version: version.git_version,
        time: time.map(|time| time.timestamp()),
        here,
        fence: fence(client).await,
    })
}

async fn body(body: Body) -> kube::Result<Vec<u8>> {
    Ok(body.collect().await?.to_bytes().to_vec())
}

/// Tries, for a kubelet, to put one of Flock's labels on the kubelet's own node.
async fn fence(client: &Client) -> Fence {
    let nodes = Api::<Node>::all(client.clone());
    let node = match nodes.list_metadata(&ListParams::default().limit(1)).await {
        Ok(list) => list.items.first().map(ResourceExt::name_any),
        Err(error) => return Fence::Unknown(words(&error)),
    };
    let Some(node) = node else {
        return Fence::Unknown("there is no node".into());
    };
    let label = format!("flock-doctor.default.{NODE_LABEL_DOMAIN}/0");
    let patch = json!({ "metadata": { "labels": { label: "" } } });
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(format!("/api/v1/nodes/{node}?dryRun=All"))
        .header(header::CONTENT_TYPE, "application/merge-patch+json")
        .header("Impersonate-User", format!("system:node:{node}"))
        .header("Impersonate-Group", "system:nodes")
        .body(Body::from(patch.to_string().into_bytes()));
    let answer = match request {
        Ok(request) => client.send(request).await,
        Err(error) => return Fence::Unknown(error.to_string()),
    };
    match answer {
        Ok(answer) => {
            let code = answer.status().as_u16();
            let body = body(answer.into_body()).await.unwrap_or_default();
            let status: Value = serde_json::from_slice(&body).unwrap_or_default();
            Fence::read(code, status["message"].as_str().unwrap_or_default())
        }
        Err(error) => Fence::Unknown(words(&error)),
    }
}

/// Creates pods and a ReplicaSet in a namespace, as if.
pub async fn probe(client: &Client, namespace: &str) -> Result<Probe, serde_json::Error> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let sets = Api::<ReplicaSet>::namespaced(client.clone(), namespace);
    let (plain_pod, member_pod) = (
        serde_json::from_value(probe::pod(false))?,
        serde_json::from_value(probe::pod(true))?,
    );
    let (mut plain_answer, mut plain_time) = create(&pods, &plain_pod).await;
    let (mut members, mut member_time) = (Vec::new(), Duration::MAX);
    // Where a pod is refused nothing more can be learned.
    let mut good = matches!(plain_answer, Answer::Admitted(_));
    while members.len() < ROUNDS && good {
        let (answer, took) = create(&pods, &member_pod).await;
        good = matches!(answer, Answer::Admitted(_));
        members.push(answer);
        member_time = member_time.min(took);
        let (answer, took) = create(&pods, &plain_pod).await;
        plain_answer = answer;
        plain_time = plain_time.min(took);
    }
    let (workload, _) = create(&sets, &serde_json::from_value(probe::workload())?).await;
    Ok(Probe {
        namespace: namespace.to_owned(),
        plain: plain_answer,
        plain_time,
        members,
        member_time,
        workload: match workload {
            Answer::Admitted(_) => Answer::Admitted(()),
            Answer::Refused(code, why) => Answer::Refused(code, why),
        },
    })
}

async fn create<K>(api: &Api<K>, object: &K) -> (Answer<K>, Duration)
where
    K: Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let begin = Instant::now();
    let answer = api.create(&params, object).await;
    let took = begin.elapsed();
    let answer = match answer {
        Ok(object) => Answer::Admitted(object),
        Err(kube::Error::Api(status)) => Answer::Refused(status.code, status.message.clone()),
        Err(error) => Answer::Refused(0, words(&error)),
    };
    (answer, took)
}
