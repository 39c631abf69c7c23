package check

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func readJob(t *testing.T) *batchv1.Job {
	t.Helper()
	data, err := os.ReadFile("../certify-job.yaml")
	if err != nil {
		t.Fatal(err)
	}
	job := new(batchv1.Job)
	if err := yaml.UnmarshalStrict(data, job); err != nil {
		t.Fatal(err)
	}
	// The check can fail.
	if err := yaml.UnmarshalStrict([]byte(strings.Replace(string(data), "completionMode", "completionsMode", 1)), new(batchv1.Job)); err == nil {
		t.Error("an unknown field was taken")
	}
	return job
}

// TestJob checks what strict decoding does not: rules between fields that the
// API server would refuse to break.
func TestJob(t *testing.T) {
	job := readJob(t)
	if job.APIVersion != "batch/v1" || job.Kind != "Job" || job.Name == "" {
		t.Errorf("%s %s %q", job.APIVersion, job.Kind, job.Name)
	}
	s := &job.Spec
	if s.CompletionMode == nil || *s.CompletionMode != batchv1.IndexedCompletion || s.Completions == nil || *s.Completions < 1 || s.Parallelism == nil {
		t.Fatalf("not an indexed job: %+v", s)
	}
	pod := &s.Template.Spec
	if pod.RestartPolicy != corev1.RestartPolicyNever { // podFailurePolicy and backoffLimitPerIndex ask for it
		t.Errorf("restartPolicy %q", pod.RestartPolicy)
	}
	names := map[string]bool{}
	for _, v := range pod.Volumes {
		names[v.Name] = true
	}
	for _, c := range pod.Containers {
		for _, m := range c.VolumeMounts {
			if !names[m.Name] {
				t.Errorf("container %q mounts volume %q, which is not there", c.Name, m.Name)
			}
		}
		for _, r := range s.PodFailurePolicy.Rules {
			if n := r.OnExitCodes.ContainerName; n == nil || *n != c.Name {
				t.Errorf("the failure policy is of container %v, not %q", n, c.Name)
			}
		}
		if want := fmt.Sprintf("/%d", *s.Completions); !strings.Contains(strings.Join(c.Args, "\n"), "--shard=$(JOB_COMPLETION_INDEX)"+want) {
			t.Errorf("args %q and %d completions do not agree", c.Args, *s.Completions)
		}
		if i := slicesIndexEnv(c.Env, "JOB_COMPLETION_INDEX"); i < 0 || c.Env[i].ValueFrom.FieldRef.FieldPath != "metadata.annotations['"+batchv1.JobCompletionIndexAnnotation+"']" {
			t.Errorf("env %+v", c.Env)
		}
	}
}

func slicesIndexEnv(env []corev1.EnvVar, name string) int {
	for i := range env {
		if env[i].Name == name {
			return i
		}
	}
	return -1
}

// TestRun runs the container's arguments for every index, as the cluster would,
// on the story model; joins the parts and checks the certificate.
func TestRun(t *testing.T) {
	job := readJob(t)
	s := newStory(t)
	var files []string
	for i := range *job.Spec.Completions {
		var args []string
		for _, a := range job.Spec.Template.Spec.Containers[0].Args {
			a = strings.ReplaceAll(a, "$(JOB_COMPLETION_INDEX)", fmt.Sprint(i))
			args = append(args, strings.NewReplacer("/pack", s.pack, "/parts", s.parts).Replace(a))
		}
		s.run("nrun", append(args, "--steps=4")...) // as many as prove the manifest
		files = append(files, filepath.Join(s.parts, fmt.Sprintf("part-%d.json", i)))
	}
	out := s.run("nrun", append([]string{"certify", "merge", "-o", s.certificate}, files...)...)
	if !strings.Contains(out, certified) {
		t.Error(out)
	}
	s.run("npack", "verify", "--certificate", s.certificate, s.pack)
}
