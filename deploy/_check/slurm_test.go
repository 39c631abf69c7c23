package check

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSlurm runs certify-slurm.sh and the merge as its first lines say, on a
// cluster of one node.
func TestSlurm(t *testing.T) {
	submit := newCluster(t)
	s := newStory(t)
	t.Setenv("PATH", s.bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	array := func(tasks string) string {
		out := submit("sbatch", "--parsable", "--array="+tasks, "--cpus-per-task=1", "--mem=1G", "certify-slurm.sh", s.pack, s.parts, "2", "--steps=4")
		return strings.TrimSpace(out)
	}
	merge := func(parts string) (state string) {
		job := strings.TrimSpace(submit("sbatch", "--parsable", "--dependency=afterok:"+parts, "--kill-on-invalid-dep=yes",
			"--wrap", "nrun certify merge "+s.parts+"/part-*.json -o "+s.certificate))
		for end := time.Now().Add(5 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
			state = field(submit("scontrol", "-o", "show", "job", job), "JobState")
			if state != "PENDING" && state != "RUNNING" && state != "COMPLETING" {
				return state
			}
			if time.Now().After(end) {
				t.Fatalf("job %s: %s", job, submit("scontrol", "show", "job", job))
			}
		}
	}

	parts := array("0-1")
	if state := merge(parts); state != "COMPLETED" {
		t.Fatalf("the merge: %s; %s", state, submit("sh", "-c", "cat *.log slurm-*.out"))
	}
	if out := submit("sh", "-c", "cat slurm-*.out"); !strings.Contains(out, certified) {
		t.Error(out)
	}
	s.run("npack", "verify", "--certificate", s.certificate, s.pack)
	part, err := os.ReadFile(filepath.Join(s.parts, "part-0.json"))
	if err != nil || !strings.Contains(string(part), `"threads": 1,`) {
		t.Errorf("more threads than the task asks for: %v, %s", err, part)
	}

	// A pack that is wrong: the task says so, and nothing is merged.
	tokenizer := filepath.Join(s.pack, "tokenizer.json")
	data, err := os.ReadFile(tokenizer)
	if err == nil {
		data[len(data)/2] ^= 1
		err = os.WriteFile(tokenizer, data, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	parts = array("1")
	if state := merge(parts); state != "CANCELLED" {
		t.Errorf("the merge of a part that failed: %s", state)
	}
	if code := field(submit("scontrol", "-o", "show", "job", parts), "ExitCode"); code != "3:0" {
		t.Errorf("exit status and signal %s of a pack that is not as pinned", code)
	}
}

// field is the value of one of the NAME=VALUE words that scontrol prints.
func field(line, name string) string {
	for _, word := range strings.Fields(line) {
		if value, ok := strings.CutPrefix(word, name+"="); ok {
			return value
		}
	}
	return ""
}

// newCluster starts Slurm with one node, this machine. It returns what runs a
// command of Slurm's and gives its output.
func newCluster(t *testing.T) func(name string, args ...string) string {
	for _, program := range []string{"munged", "slurmctld", "slurmd", "sbatch"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("SKIP: %s is not installed (Debian: slurm-wlm and munge)", program)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "slurm") // not the test's own: a socket's path is short, and munged insists that all may reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	script, err := filepath.Abs("../certify-slurm.sh")
	if err != nil {
		t.Fatal(err)
	}
	conf := fmt.Sprintf(`ClusterName=check
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=%[2]d
SlurmdPort=%[3]d
SlurmUser=%[4]s
SlurmdUser=%[4]s
AuthInfo=socket=%[5]s/munge.socket
StateSaveLocation=%[5]s/state
SlurmdSpoolDir=%[5]s/spool
SlurmctldPidFile=%[5]s/slurmctld.pid
SlurmdPidFile=%[5]s/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
NodeName=node NodeHostname=%[1]s NodeAddr=127.0.0.1 CPUs=1 RealMemory=1024
PartitionName=all Nodes=node Default=YES
`, host, freePort(t), freePort(t), me.Username, dir)
	for _, err := range []error{
		os.Chmod(dir, 0o755),
		os.Mkdir(filepath.Join(dir, "state"), 0o755),
		os.Mkdir(filepath.Join(dir, "spool"), 0o755),
		os.WriteFile(filepath.Join(dir, "slurm.conf"), []byte(conf), 0o644),
		os.WriteFile(filepath.Join(dir, "munge.key"), []byte(strings.Repeat("no secret", 20)), 0o600),
		os.Symlink(script, filepath.Join(dir, "certify-slurm.sh")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SLURM_CONF", filepath.Join(dir, "slurm.conf"))

	log := func(name string) string { return filepath.Join(dir, name+".said") }
	start := func(name string, args ...string) {
		said, err := os.Create(log(name))
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, said, said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Signal(os.Interrupt)
			_ = cmd.Wait()
			_ = said.Close()
		})
	}
	// until waits for what a program has to be able to do.
	until := func(name string, ready func() bool) {
		for end := time.Now().Add(time.Minute); !ready(); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				said, _ := os.ReadFile(log(name))
				t.Fatalf("%s does not come up: %s", name, said)
			}
		}
	}
	start("munged", "--foreground", "--key-file="+dir+"/munge.key", "--socket="+dir+"/munge.socket", "--pid-file="+dir+"/munged.pid", "--seed-file="+dir+"/munge.seed")
	until("munged", func() bool { _, err := os.Stat(filepath.Join(dir, "munge.socket")); return err == nil })
	start("slurmctld", "-D")
	start("slurmd", "-D", "-N", "node")
	until("slurmd", func() bool {
		out, _ := exec.Command("sinfo", "--noheader", "--format=%T").Output()
		return strings.TrimSpace(string(out)) == "idle"
	})
	return func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v: %s", name, args, err, out)
		}
		return string(out)
	}
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
