{{- define "hilum.name" -}}
{{- if contains "hilum" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-hilum" (.Release.Name | trunc 34 | trimSuffix "-") }}{{ end -}}
{{- end -}}

{{- define "hilum.selector" -}}
app.kubernetes.io/name: hilum
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* part-of is the label job of the scrape: the rules of deploy/prometheus ask for job="hilum". */}}
{{- define "hilum.labels" -}}
{{ include "hilum.selector" . }}
app.kubernetes.io/part-of: hilum
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "hilum.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "hilum.archiveClaim" -}}
{{ .Values.archive.existingClaim | default (printf "%s-archive" (include "hilum.name" .)) }}
{{- end -}}

{{/* The addresses of all Tritons as JSON: one for each pod, because Hilum loads and proves a release at each of them. */}}
{{- define "hilum.tritonUrls" -}}
{{- $urls := list -}}
{{- if eq .Values.triton.mode "external" -}}
{{- $urls = .Values.triton.urls -}}
{{- else if eq .Values.triton.mode "pools" -}}
{{- $service := printf "%s-triton" (include "hilum.name" .) -}}
{{- range $pool := .Values.triton.pools -}}
{{- range $number := until (int $pool.replicas) -}}
{{- $urls = append $urls (printf "%s-%s-%d.%s.%s.svc.%s:8001" $service $pool.name $number $service $.Release.Namespace $.Values.triton.clusterDomain) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ toJson $urls }}
{{- end -}}

{{- define "hilum.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "hilum.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Environment of every container of Hilum's image. It comes before the settings file. */}}
{{- define "hilum.environment" -}}
- {name: HOME, value: /tmp}
- {name: HILUM_CONFIG, value: /etc/hilum/hilum.toml}
- {name: HILUM_SITE__STATE_DIR, value: /var/lib/hilum}
- {name: HILUM_LOG__FORMAT, value: json}
- {name: HILUM_API__HOST, value: 0.0.0.0}
- {name: HILUM_API__PORT, value: "8640"}
- {name: HILUM_RECEIVE__HOST, value: 0.0.0.0}
- {name: HILUM_RECEIVE__PORT, value: "11112"}
- {name: HILUM_ANALYSE__DECODE_PROCESSES, value: {{ .Values.analyser.decodeProcesses | quote }}}
- name: HILUM_LEDGER__URL
  valueFrom: {secretKeyRef: {name: {{ .Values.ledger.secret.name }}, key: {{ .Values.ledger.secret.key }}}}
{{- if ne .Values.triton.mode "embedded" }}
- {name: HILUM_TRITON__URLS, value: {{ include "hilum.tritonUrls" . | quote }}}
{{- end }}
{{- if and (eq .Values.triton.mode "pools") .Values.triton.tls.clientSecret }}
- {name: HILUM_TRITON__TLS, value: "true"}
- {name: HILUM_TRITON__TLS_SERVER_NAME, value: {{ include "hilum.name" . }}-triton}
- {name: HILUM_TRITON__CA_FILE, value: /etc/hilum/triton-tls/ca.crt}
- {name: HILUM_TRITON__CERTIFICATE_FILE, value: /etc/hilum/triton-tls/tls.crt}
- {name: HILUM_TRITON__KEY_FILE, value: /etc/hilum/triton-tls/tls.key}
{{- end }}
{{- with .Values.models.manifestsClaim }}
- {name: HILUM_MODELS__MANIFESTS, value: /srv/manifests}
{{- end }}
{{- with .Values.listener.tls }}
{{- if .secret }}
- {name: HILUM_RECEIVE__TLS_PORT, value: {{ .port | quote }}}
- {name: HILUM_RECEIVE__TLS_CERTIFICATE_FILE, value: /etc/hilum/dicom-tls/tls.crt}
- {name: HILUM_RECEIVE__TLS_KEY_FILE, value: /etc/hilum/dicom-tls/tls.key}
- {name: HILUM_RECEIVE__ALLOW_UNENCRYPTED, value: {{ .allowUnencrypted | quote }}}
{{- if .clientCa }}
- {name: HILUM_RECEIVE__TLS_CLIENT_CA_FILE, value: /etc/hilum/dicom-tls/ca.crt}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.api.tlsSecret }}
- {name: HILUM_API__TLS_CERTIFICATE_FILE, value: /etc/hilum/api-tls/tls.crt}
- {name: HILUM_API__TLS_KEY_FILE, value: /etc/hilum/api-tls/tls.key}
{{- end }}
{{- $names := .Values.api.names }}
{{- if .Values.ingress.enabled }}{{ $names = append $names .Values.ingress.host | uniq }}{{ end }}
{{- if $names }}
- {name: HILUM_API__NAMES, value: {{ toJson $names | quote }}}
{{- end }}
{{- if .Values.api.proxies }}
- {name: HILUM_API__PROXIES, value: {{ toJson .Values.api.proxies | quote }}}
{{- end }}
{{- if .Values.monitoring.openMetrics }}
- {name: HILUM_API__OPEN_METRICS, value: "true"}
{{- end }}
{{- range $variable, $from := .Values.secretEnv }}
- name: {{ $variable }}
  valueFrom: {secretKeyRef: {name: {{ $from.secret }}, key: {{ $from.key }}}}
{{- end }}
{{- end -}}

{{- define "hilum.mounts" -}}
- {name: state, mountPath: /var/lib/hilum}
- {name: archive, mountPath: /var/lib/hilum/archive}
- {name: built, mountPath: /var/lib/hilum/models}
- {name: tmp, mountPath: /tmp}
- {name: shm, mountPath: /dev/shm}
- {name: settings, mountPath: /etc/hilum/hilum.toml, subPath: hilum.toml, readOnly: true}
{{- if .Values.models.manifestsClaim }}
- {name: manifests, mountPath: /srv/manifests, readOnly: true}
{{- end }}
{{- range $volume, $secret := include "hilum.secretVolumes" . | fromJson }}
- {name: {{ $volume }}, mountPath: {{ $secret.path }}, readOnly: true}
{{- end }}
{{- end -}}

{{- define "hilum.volumes" -}}
- {name: state, emptyDir: {}}
- {name: archive, persistentVolumeClaim: {claimName: {{ include "hilum.archiveClaim" . }}}}
{{- if .Values.models.builtClaim }}
- {name: built, persistentVolumeClaim: {claimName: {{ .Values.models.builtClaim }}}}
{{- else }}
- {name: built, emptyDir: {}}
{{- end }}
- {name: tmp, emptyDir: {}}
- {name: shm, emptyDir: {medium: Memory, sizeLimit: {{ .Values.analyser.sharedMemory }}}}
- {name: settings, configMap: {name: {{ include "hilum.name" . }}-settings}}
{{- if .Values.models.manifestsClaim }}
- {name: manifests, persistentVolumeClaim: {claimName: {{ .Values.models.manifestsClaim }}, readOnly: true}}
{{- end }}
{{- range $volume, $secret := include "hilum.secretVolumes" . | fromJson }}
- {name: {{ $volume }}, secret: {secretName: {{ $secret.name }}, defaultMode: 0440}}
{{- end }}
{{- end -}}

{{/* Secrets as files: volume → path and name. */}}
{{- define "hilum.secretVolumes" -}}
{{- $found := dict -}}
{{- with .Values.listener.tls.secret }}{{ $_ := set $found "dicom-tls" (dict "path" "/etc/hilum/dicom-tls" "name" .) }}{{ end -}}
{{- with .Values.api.tlsSecret }}{{ $_ := set $found "api-tls" (dict "path" "/etc/hilum/api-tls" "name" .) }}{{ end -}}
{{- if eq .Values.triton.mode "pools" -}}
{{- with .Values.triton.tls.clientSecret }}{{ $_ := set $found "triton-tls" (dict "path" "/etc/hilum/triton-tls" "name" .) }}{{ end -}}
{{- end -}}
{{- range $name, $secret := .Values.secretFiles }}{{ $_ := set $found (printf "secret-%s" $name) (dict "path" (printf "/etc/hilum/secrets/%s" $name) "name" $secret) }}{{ end -}}
{{ toJson $found }}
{{- end -}}

{{- define "hilum.container" -}}
image: {{ include "hilum.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {{- include "hilum.containerSecurity" . | nindent 2 }}
env: {{- include "hilum.environment" . | nindent 2 }}
volumeMounts: {{- include "hilum.mounts" . | nindent 2 }}
{{- end -}}

{{- define "hilum.podCommon" -}}
serviceAccountName: {{ include "hilum.name" . }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {{- include "hilum.podSecurity" . | nindent 2 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}
