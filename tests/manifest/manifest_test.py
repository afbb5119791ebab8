"""manifest_test.py MILLRACE: what `millrace manifest` prints, judged by Kubernetes' schemas, Kubeflow's models, bash and the certificates' own rules."""

import json
import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest

import api_server
import kubernetes_validate
import yaml
from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet
from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob
from kubeflow_trainer_api.models.trainer_v1alpha1_training_runtime import TrainerV1alpha1TrainingRuntime
import kubeflow.training.models as kubeflow_models
from kubernetes.client import ApiClient
import kubernetes.client.models as kubernetes_models

MILLRACE = ""
VERSIONS = ("1.31", "1.37")  # of Kubernetes
PROGRAM = ("--", "./my_program", "--lr=0.1", "two words", "{task_index}", "yes", "0x10", "")


def run(*words, program=PROGRAM):
    return subprocess.run([MILLRACE, "manifest", *words, *program], capture_output=True, text=True, timeout=60)


class ManifestTest(unittest.TestCase):
    def manifest(self, kind, *words):
        result = run("--for", kind, "--ps", "2", "--workers", "4", "--image", "registry/image:1", *words)
        self.assertEqual(result.returncode, 0, result.stderr)
        return list(yaml.safe_load_all(result.stdout))

    def one(self, documents, kind):
        found = [document for document in documents if document["kind"] == kind]
        self.assertEqual(len(found), 1, kind)
        return found[0]

    def check_schemas(self, documents):
        for document in documents:
            for version in VERSIONS:
                kubernetes_validate.validate(document, version, strict=True)

    def check_pod(self, pod, job):
        """What every pod of a task must have."""
        self.check_schemas([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": pod}])
        self.assertTrue(pod["securityContext"]["runAsNonRoot"])
        self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
        self.assertEqual(pod["terminationGracePeriodSeconds"], 60)
        for container in pod["containers"]:
            context = container["securityContext"]
            self.assertTrue(context["readOnlyRootFilesystem"])
            self.assertFalse(context["allowPrivilegeEscalation"])
            self.assertEqual(context["capabilities"], {"drop": ["ALL"]})
        task = pod["containers"][0]
        self.assertEqual(task["command"][-7:], list(PROGRAM[1:]))
        self.assertEqual(task["command"][:2], ["millrace", "place"])
        self.assertEqual(task["readinessProbe"]["exec"]["command"], ["millrace", "health", "--port", "2222"])
        self.assertEqual("livenessProbe" in task, job == "ps")
        names = {variable["name"]: variable["value"] for variable in task["env"]}
        self.assertEqual(names["MILLRACE_GRACE"], "60")
        self.assertEqual(names["MILLRACE_TLS_DIR"], "/etc/millrace/tls")
        mounts = {mount["mountPath"] for mount in task["volumeMounts"]}
        self.assertLessEqual({"/tmp", "/etc/millrace/tls"}, mounts)
        return task

    def check_job(self, spec, count):
        """An Indexed Job: disruptions and notices are retried, mistakes are not."""
        self.check_schemas([{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": spec}])
        self.assertEqual((spec["completionMode"], spec["completions"], spec["parallelism"]), ("Indexed", count, count))
        self.assertEqual(spec["template"]["spec"]["restartPolicy"], "Never")  # podFailurePolicy needs it
        rules = spec["podFailurePolicy"]["rules"]
        self.assertEqual(rules[0]["onPodConditions"][0]["type"], "DisruptionTarget")
        self.assertEqual([(rule["action"], rule.get("onExitCodes", {}).get("values")) for rule in rules],
                         [("Ignore", None), ("Ignore", [143]), ("FailJob", [2, 126, 127])])
        names = [container["name"] for container in spec["template"]["spec"]["containers"]]
        for rule in rules[1:]:
            self.assertIn(rule["onExitCodes"]["containerName"], names)

    def check_certificate(self, documents, hosts):
        """The Secret's certificate holds for the names under which the tasks reach each other, and its key fits."""
        data = self.one(documents, "Secret")["stringData"]
        with tempfile.TemporaryDirectory() as folder:
            for name, text in data.items():
                with open(os.path.join(folder, name), "w") as f:
                    f.write(text)
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=os.path.join(folder, "ca.pem"))
            context.load_cert_chain(os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem"))
            text = subprocess.run(["openssl", "x509", "-in", os.path.join(folder, "cert.pem"), "-noout", "-ext", "subjectAltName"],
                                  capture_output=True, text=True, check=True).stdout
        names = re.findall(r"DNS:([^,\s]+)", text)
        self.assertLessEqual({*hosts, "localhost"}, set(names))

    def test_kubernetes(self):
        documents = self.manifest("kubernetes", "--namespace", "ml")
        self.check_schemas(documents)
        service = self.one(documents, "Service")
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertTrue(service["spec"]["publishNotReadyAddresses"])
        ps, job = self.one(documents, "StatefulSet"), self.one(documents, "Job")
        for pods in (ps["spec"]["template"], job["spec"]["template"]):
            self.assertLessEqual(service["spec"]["selector"].items(), pods["metadata"]["labels"].items())
        self.assertEqual(ps["spec"]["serviceName"], service["metadata"]["name"])
        self.assertEqual(ps["spec"]["selector"]["matchLabels"], ps["spec"]["template"]["metadata"]["labels"])
        self.assertEqual(job["spec"]["template"]["spec"]["subdomain"], service["metadata"]["name"])
        self.check_job(job["spec"], 4)
        self.check_pod(job["spec"]["template"]["spec"], "worker")
        task = self.check_pod(ps["spec"]["template"]["spec"], "ps")
        self.assertEqual(task["command"][:8], ["millrace", "place", "--ps", "2", "--workers", "4", "--port", "2222"])
        self.check_certificate(documents, ["train-%s-%d.train.ml.svc.cluster.local" % task for task in
                                           (("ps", 0), ("ps", 1), ("worker", 0), ("worker", 3))])
        for document in documents:
            self.assertEqual(document["metadata"]["namespace"], "ml")

    def test_the_ps_end_with_the_job_and_may_do_nothing_else(self):
        documents = self.manifest("kubernetes")
        ps, job, role = (self.one(documents, kind) for kind in ("StatefulSet", "Job", "Role"))
        pod = ps["spec"]["template"]["spec"]
        end = pod["containers"][1]
        self.assertEqual(end["command"], ["millrace", "end-with-job", "--job", job["metadata"]["name"], "--statefulset", ps["metadata"]["name"]])
        self.assertEqual(role["rules"], [
            {"apiGroups": ["batch"], "resources": ["jobs"], "resourceNames": [job["metadata"]["name"]], "verbs": ["get"]},
            {"apiGroups": ["apps"], "resources": ["statefulsets"], "resourceNames": [ps["metadata"]["name"]], "verbs": ["delete"]}])
        binding, account = self.one(documents, "RoleBinding"), self.one(documents, "ServiceAccount")
        self.assertEqual(binding["roleRef"]["name"], role["metadata"]["name"])
        self.assertEqual(binding["subjects"][0]["name"], account["metadata"]["name"])
        self.assertEqual(pod["serviceAccountName"], account["metadata"]["name"])
        # The program itself gets no token.
        self.assertFalse(pod["automountServiceAccountToken"])
        self.assertNotIn("token", [mount["name"] for mount in pod["containers"][0]["volumeMounts"]])
        self.assertIn("token", [mount["name"] for mount in end["volumeMounts"]])

    def test_without_ps_there_is_neither_set_nor_role(self):
        result = run("--for", "kubernetes", "--workers", "2", "--image", "i")
        kinds = [document["kind"] for document in yaml.safe_load_all(result.stdout)]
        self.assertEqual(kinds, ["Secret", "Service", "Job"])

    def through(self, model, document):
        """The document as Kubeflow's own model reads and writes it: nothing may be lost."""
        again = json.loads(model.from_json(json.dumps(document)).to_json())
        self.assertEqual(again, document)

    def test_jobset(self):
        documents = self.manifest("jobset")
        self.check_schemas([self.one(documents, "Secret")])
        jobset = self.one(documents, "JobSet")
        self.through(JobsetV1alpha2JobSet, jobset)
        spec = jobset["spec"]
        self.assertEqual(spec["successPolicy"], {"operator": "All", "targetReplicatedJobs": ["worker"]})
        self.assertTrue(spec["network"]["publishNotReadyAddresses"])
        ps, worker = spec["replicatedJobs"]
        self.check_job(ps["template"]["spec"], 2)
        self.check_job(worker["template"]["spec"], 4)
        self.check_pod(ps["template"]["spec"]["template"]["spec"], "ps")
        self.check_pod(worker["template"]["spec"]["template"]["spec"], "worker")
        self.check_certificate(documents, ["train-ps-0-1.train.default.svc.cluster.local", "train-worker-0-3.train.default.svc.cluster.local"])

    def test_trainjob(self):
        documents = self.manifest("trainjob")
        runtime, job = self.one(documents, "TrainingRuntime"), self.one(documents, "TrainJob")
        self.through(TrainerV1alpha1TrainingRuntime, runtime)
        self.through(TrainerV1alpha1TrainJob, job)
        self.assertEqual(job["spec"]["runtimeRef"]["name"], runtime["metadata"]["name"])
        self.assertEqual(job["spec"]["trainer"]["numNodes"], 4)
        ps, worker = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        self.assertEqual(worker["template"]["metadata"]["labels"], {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"})
        self.check_job(ps["template"]["spec"], 2)
        self.check_job(worker["template"]["spec"], 4)
        self.assertEqual(worker["template"]["spec"]["template"]["spec"]["containers"][0]["name"], "node")

    def test_tfjob(self):
        documents = self.manifest("tfjob")
        job = self.one(documents, "TFJob")

        class Answer:  # as ApiClient wants it
            data = json.dumps(job)
        client = ApiClient()
        for name in dir(kubeflow_models):
            if name.startswith("KubeflowOrg"):
                setattr(kubernetes_models, name, getattr(kubeflow_models, name))
        read = client.deserialize(Answer, "KubeflowOrgV1TFJob")
        self.assertEqual(client.sanitize_for_serialization(read), job)
        specs = job["spec"]["tfReplicaSpecs"]
        self.assertEqual({name: spec["replicas"] for name, spec in specs.items()}, {"PS": 2, "Worker": 4})
        for name, spec in specs.items():
            container = spec["template"]["spec"]["containers"][0]
            # What the operator looks for.
            self.assertEqual(container["name"], "tensorflow")
            self.assertEqual(container["ports"], [{"name": "tfjob-port", "containerPort": 2222, "protocol": "TCP"}])
            self.check_pod(spec["template"]["spec"], name.lower())
        self.assertEqual(job["spec"]["runPolicy"]["cleanPodPolicy"], "Running")
        self.check_certificate(documents, ["train-ps-1.default.svc", "train-worker-3.default.svc"])

    def test_resources_gpus_volume_and_environment(self):
        documents = self.manifest("kubernetes", "--cpu", "500m", "--memory", "4Gi", "--gpus", "2", "--volume", "data:/data", "--env", "A=b=c", "--env", "B=")
        self.check_schemas(documents)
        worker = self.one(documents, "Job")["spec"]["template"]["spec"]
        ps = self.one(documents, "StatefulSet")["spec"]["template"]["spec"]
        amounts = {"cpu": "500m", "memory": "4Gi", "nvidia.com/gpu": 2}
        self.assertEqual(worker["containers"][0]["resources"], {"requests": amounts, "limits": amounts})
        self.assertNotIn("nvidia.com/gpu", ps["containers"][0]["resources"]["limits"])
        for pod in (worker, ps):
            self.assertIn({"name": "data", "mountPath": "/data"}, pod["containers"][0]["volumeMounts"])
            self.assertIn({"name": "data", "persistentVolumeClaim": {"claimName": "data"}}, pod["volumes"])
            self.assertIn({"name": "A", "value": "b=c"}, pod["containers"][0]["env"])
            self.assertIn({"name": "B", "value": ""}, pod["containers"][0]["env"])

    def test_insecure_has_no_secret(self):
        for kind in ("kubernetes", "jobset", "tfjob", "trainjob"):
            documents = self.manifest(kind, "--insecure")
            self.assertNotIn("Secret", [document["kind"] for document in documents])
            self.assertIn("MILLRACE_INSECURE", json.dumps(documents))
            self.assertNotIn("MILLRACE_TLS_DIR", json.dumps(documents))

    def test_slurm(self):
        result = run("--for", "slurm", "--ps", "1", "--workers", "3", "--cpu", "2", "--memory", "4Gi", "--env", "A=b c", "--name", "fit")
        self.assertEqual(result.returncode, 0, result.stderr)
        for line in ("#SBATCH --job-name=fit", "#SBATCH --ntasks=4", "#SBATCH --cpus-per-task=2", "#SBATCH --signal=B:TERM@70", "#SBATCH --requeue"):
            self.assertIn(line + "\n", result.stdout)
        # bash gives the program its words.
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "millrace"), "w") as f:
                f.write("#!/bin/sh\nprintf '%s\\n' \"$A\" \"$@\"\n")
            os.chmod(os.path.join(folder, "millrace"), 0o700)
            words = subprocess.run(["bash"], input=result.stdout, capture_output=True, text=True, env={"PATH": folder + ":/usr/bin:/bin"}).stdout.split("\n")
        self.assertEqual(words[:-1], ["b c", "launch", "--ps", "1", "--workers", "3", "--grace", "60", "--requeue", *PROGRAM])

    def test_bad_flags_say_what_is_allowed(self):
        cases = [(("--name", "My_Job"), "lower-case letters, digits and '-'"), (("--name", "a" * 41), "40 characters"), (("--name", "1a"), "begin with a letter"),
                 (("--name", "a-"), "end with a letter"), (("--namespace", "A"), "--namespace"), (("--workers", "0"), "--workers"), (("--ps", "-1"), "--ps"),
                 (("--cpu", "two"), "--cpu"), (("--memory", "4 GB"), "--memory"), (("--gpus", "-1"), "--gpus"), (("--port", "80"), "not root"),
                 (("--grace", "0"), "--grace"), (("--volume", "data"), "CLAIM:/PATH"), (("--volume", "data:relative"), "absolute"), (("--volume", "D:/d"), "PersistentVolumeClaim"),
                 (("--env", "A-B=1"), "NAME=VALUE"), (("--image", "a b"), "space"), (("--user", "0"), "not root")]
        for words, text in cases:
            with self.subTest(words=words):
                result = run("--for", "kubernetes", *(() if words[0] == "--image" else ("--image", "i")), *words)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertIn(text, result.stderr)
        self.assertIn("--image", run("--for", "jobset").stderr)
        self.assertIn("kubernetes, jobset, tfjob, trainjob or slurm", run("--for", "nomad", "--image", "i").stderr)
        self.assertIn("after --", run("--for", "slurm", program=()).stderr)


class EndWithJobTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, host="127.0.0.1"):
        """The command, which is told that the API server is at `host`."""
        self.api = api_server.ApiServer(os.path.join(self.folder, "api"), socket.create_server((host, 0)), name="127.0.0.1")
        self.addCleanup(self.api.close)
        for name, text in (("ca.crt", self.api.authority), ("token", self.api.token), ("namespace", "ml")):
            with open(os.path.join(self.folder, name), "w") as f:
                f.write(text)
        env = {**os.environ, "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(self.api.port), "MILLRACE_SERVICE_ACCOUNT": self.folder}
        process = subprocess.Popen([MILLRACE, "end-with-job", "--job", "train-worker", "--statefulset", "train-ps", "--every", "0.05"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        return process

    def test_the_set_is_removed_when_the_job_has_ended(self):
        for end in ("Complete", "Failed"):
            with self.subTest(end=end):
                process = self.start()
                self.api.refuse = 1
                while len(self.api.requests) < 3:
                    pass
                self.assertEqual({method for method, _, _ in self.api.requests}, {"GET"})
                self.api.ended = end
                self.assertTrue(self.api.deleted.wait(30))
                process.terminate()
                out, err = process.communicate(timeout=30)
                self.assertEqual(process.returncode, 0)
                self.assertIn("Job train-worker: %s; the ps end" % end, out)
                self.assertIn("answers 503", err)
                self.assertEqual(self.api.requests[0], ("GET", "/apis/batch/v1/namespaces/ml/jobs/train-worker", "Bearer a token"))
                self.assertEqual(self.api.requests[-1][:2], ("DELETE", "/apis/apps/v1/namespaces/ml/statefulsets/train-ps?propagationPolicy=Background"))

    def test_a_server_with_another_name_gets_no_token(self):
        process = self.start(host="127.0.0.2")  # the certificate is not for it
        self.assertIn("certificate verify failed", process.stderr.readline())
        self.assertEqual(self.api.requests, [])

    def test_outside_of_a_pod_it_says_so(self):
        env = {name: value for name, value in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"}
        result = subprocess.run([MILLRACE, "end-with-job", "--job", "a-b", "--statefulset", "a-ps"], capture_output=True, text=True, env=env, timeout=30)
        self.assertEqual(result.returncode, 2)
        self.assertIn("this is not a pod", result.stderr)


if __name__ == "__main__":
    MILLRACE = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
